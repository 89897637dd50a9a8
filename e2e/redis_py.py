"""What redis-py needs of a server: HELLO 3 (its default) or RESP2, pipelines, a pool, errors."""

from concurrent.futures import ThreadPoolExecutor

import redis

from checks import RESP, error_of, same


def check_all(prefix, protocol):
    options = {} if protocol == 3 else {"protocol": protocol}
    client = redis.Redis(port=RESP, client_name="e2e", health_check_interval=1, **options)

    def throttle(*words):
        return client.execute_command("CL.THROTTLE", *words)

    same(f"{prefix} ping", True, client.ping())
    agreed = client.client_info()
    same(f"{prefix} speaks what was agreed", protocol, int(agreed["resp"]))
    same(f"{prefix} client_getname", "e2e", text(client.client_getname()))
    same(f"{prefix} info", "7.0.15", client.info()["redis_version"])

    key = f"py {protocol} one"
    same(f"{prefix} CL.THROTTLE", [0, 16, 15, -1, 2], throttle(key, 15, 30, 60))
    key = b"\xff\xfe%d" % protocol
    same(f"{prefix} a key that is no text", [0, 5, 4, -1, 60], throttle(key, 4, 1, 60))

    with client.pipeline(transaction=False) as pipe:
        for _ in range(1000):
            pipe.execute_command("CL.THROTTLE", f"py {protocol} many", 99, 1, 3600)
        replies = pipe.execute()
    wanted = [[0, 100, 99 - n] for n in range(100)] + [[1, 100, 0]] * 900
    same(f"{prefix} a pipeline of 1000", wanted, [reply[:3] for reply in replies])

    # As pipelines are unless they are told otherwise.
    with client.pipeline() as pipe:
        for _ in range(3):
            pipe.execute_command("CL.THROTTLE", f"py {protocol} at once", 99, 1, 3600)
        same(f"{prefix} a transaction", [99, 98, 97], [reply[2] for reply in pipe.execute()])

    unknown = "ResponseError: unknown command 'GET', with args beginning with: 'x' "
    same(f"{prefix} an unknown command", unknown, error_of(client.get, "x"))
    number = "ResponseError: Cell error: Store error: Couldn't parse as integer: many"
    same(f"{prefix} no number", number, error_of(throttle, "k", "many", 1, 1))
    same(f"{prefix} goes on after errors", True, client.ping())
    client.close()

    # Eight threads share four connections and one key.
    pool = redis.BlockingConnectionPool(port=RESP, max_connections=4, timeout=5, **options)
    shared = redis.Redis(connection_pool=pool)

    def ask(_):
        return shared.execute_command("CL.THROTTLE", f"py {protocol} pool", 49, 1, 3600)[0]

    with ThreadPoolExecutor(8) as threads:
        denied = sum(threads.map(ask, range(400)))
    same(f"{prefix} a pool admits the burst and no more", 350, denied)
    pool.disconnect()


def text(value):
    return value.decode() if isinstance(value, bytes) else value


check_all("redis-py RESP3", 3)
check_all("redis-py RESP2", 2)
