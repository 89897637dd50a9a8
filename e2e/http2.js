// Node's HTTP/2 client: more streams at once on one connection than the daemon takes, and a large
// body beside them.
"use strict";
const http2 = require("node:http2");

function same(name, wanted, got) {
  const [w, g] = [JSON.stringify(wanted), JSON.stringify(got)];
  console.log(w === g ? `ok ${name}` : `FAILED ${name}\n  wanted: ${w}\n  got:    ${g}`);
}

const session = http2.connect(`http://127.0.0.1:${process.env.HTTP}`);
session.on("error", (error) => console.log(`FAILED http2 session: ${error}`));

function post(path, body) {
  return new Promise((resolve) => {
    const stream = session.request({ ":method": "POST", ":path": path });
    let status = 0;
    let answer = "";
    stream.on("response", (headers) => (status = headers[":status"]));
    stream.on("data", (chunk) => (answer += chunk));
    stream.on("end", () => resolve({ status, answer }));
    stream.on("error", (error) => resolve({ status: String(error), answer }));
    stream.end(body);
  });
}

async function main() {
  const check = JSON.stringify({ entries: { tenant: "http2" } });
  const answers = await Promise.all(Array.from({ length: 1000 }, () => post("/v1/check", check)));
  const counts = {};
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  same("http2 1000 streams on one connection", { 200: 20, 429: 980 }, counts);

  const requests = Array.from({ length: 1000 }, () => ({ entries: { tenant: "http2 batch" } }));
  const [batch, ...others] = await Promise.all([
    post("/v1/check", JSON.stringify({ requests })),
    ...Array.from({ length: 50 }, () => post("/v1/peek", check)),
  ]);
  const allowed = JSON.parse(batch.answer).results.filter((result) => result.allowed).length;
  same("http2 a batch beside small requests", [200, 20], [batch.status, allowed]);
  same("http2 small requests beside a batch", 50, others.filter((o) => o.status === 200).length);
  session.close();
}

main();
