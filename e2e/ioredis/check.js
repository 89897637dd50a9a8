// What ioredis needs of a server: INFO when it connects, CL.THROTTLE, a pipeline, errors.
"use strict";
const { Redis } = require("ioredis");
const { isDeepStrictEqual } = require("node:util");

function same(name, wanted, got) {
  if (isDeepStrictEqual(wanted, got)) return console.log(`ok ${name}`);
  const shown = (value) => JSON.stringify(value);
  console.log(`FAILED ${name}\n  wanted: ${shown(wanted)}\n  got:    ${shown(got)}`);
}

async function main() {
  const redis = new Redis({
    host: "127.0.0.1",
    port: Number(process.env.RESP),
    connectionName: "e2e",
    maxRetriesPerRequest: 1,
  });
  redis.on("error", (error) => console.log(`FAILED ioredis connection: ${error}`));

  same("ioredis PING", "PONG", await redis.ping());
  same("ioredis CLIENT GETNAME", "e2e", await redis.client("GETNAME"));
  const reply = await redis.call("CL.THROTTLE", "js one", 15, 30, 60);
  same("ioredis CL.THROTTLE", [0, 16, 15, -1, 2], reply);

  const pipeline = redis.pipeline();
  for (let n = 0; n < 1000; n += 1) pipeline.call("CL.THROTTLE", "js many", 99, 1, 3600);
  const replies = await pipeline.exec();
  const wrong = replies.filter(([error, value], n) => error || value[0] !== (n < 100 ? 0 : 1));
  same("ioredis a pipeline of 1000", [1000, []], [replies.length, wrong.slice(0, 3)]);

  const said = await redis.get("x").catch((error) => error.message);
  const unknown = "ERR unknown command 'get', with args beginning with: 'x' ";
  same("ioredis an unknown command", unknown, said);
  const bytes = await redis.call("CL.THROTTLE", Buffer.from([0xff, 0xfe, 0x00]), 4, 1, 60);
  same("ioredis a key that is no text", [0, 5, 4, -1, 60], bytes);
  same("ioredis QUIT", "OK", await redis.quit());
}

main().catch((error) => console.log(`FAILED ioredis: ${error.stack}`));
