"""Envoy itself before a small upstream, asking a real daemon: what passes, what the answers say,
and what becomes of requests while the daemon fails, restarts and drains.

envoy.yaml beside it has a route for each way to ask; ratelimit.yaml has their limits.
"""

import base64
import http.client
import os
import pathlib
import socket
import threading
import time

from google.protobuf.struct_pb2 import Struct, Value

from checks import same
from daemons import Daemon, wait
from envoys import Envoy

HERE = pathlib.Path(__file__).parent
WORK = pathlib.Path(os.environ["WORK"])
LIMITS = str(HERE / "ratelimit.yaml")
CALLS = "cluster.rls.upstream_rq_completed"
GRPC_HEADERS = ("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset")


def main():
    daemon = Daemon("envoy", "--config", LIMITS)
    (WORK / "envoy.secret").write_text("open sesame")
    with_secret = Daemon("envoy.secret", "--config", LIMITS, "--grpc-headers", "draft03",
                         "--secret-file", str(WORK / "envoy.secret"))
    loaded = Daemon("envoy.load", "--config", LIMITS, "--reuse-port")
    watched = Daemon("envoy.watched", "--config", LIMITS, "--notice-seconds", "1")
    silent = socket.create_server(("127.0.0.1", 0))
    envoy = Envoy("envoy", (HERE / "envoy.yaml").read_text(), GRPC=daemon.grpc,
                  GRPC_SECRET=with_secret.grpc, GRPC_LOAD=loaded.grpc, GRPC_WATCHED=watched.grpc,
                  SILENT=silent.getsockname()[1])
    headers_say_what_is_left(envoy)
    the_daemon_adds_headers_if_it_is_to(envoy)
    limits_of_other_kinds(envoy, daemon)
    limits_that_requests_bring(envoy)
    several_units_at_once(envoy)
    a_secret_is_metadata(envoy)
    health_is_seen(envoy, watched)
    no_answer_is_a_failure_mode(envoy, daemon)
    a_restart_is_not_noticed(envoy, loaded)


def headers_say_what_is_left(envoy):
    """Two descriptors; the one that is closer to its limit speaks, and a denial speaks first."""
    both = '2;w=60;name="per-user", 3;w=60;name="per-route"'
    for user, status, limit, left, reset in (
        ("ada", 200, 2, 1, 30),
        ("ada", 200, 2, 0, 60),
        # Nothing was spent of the route's either.
        ("ada", 429, 2, 0, 60),
        ("bob", 200, 3, 0, 60),
        ("bob", 429, 3, 0, 60),
        ("cyd", 429, 3, 0, 60),
    ):
        got = envoy.get("/two", user)
        wanted = (status, f"{limit}, {both}", str(left), str(reset))
        same(f"envoy: x-ratelimit-* for {user}, {status}, {left} left", wanted, x_headers(got))
        over = ("true", str(reset)) if status == 429 else (None, None)
        same("envoy: and what only a denial has", over,
             (got.header("x-envoy-ratelimited"), got.header("retry-after")))
    first, second = envoy.get("/unnamed", "ada"), envoy.get("/unnamed", "ada")
    same("envoy: a limit without a name", (200, "1, 1;w=3600", "0", "3600"), x_headers(first))
    same("envoy: two entries of a descriptor are one limit", 429, second.status)


def the_daemon_adds_headers_if_it_is_to(envoy):
    got = envoy.get("/plain", "plain")
    same("envoy: no header fields unless asked for", (200, [], []),
         (got.status, got.starting("x-ratelimit"), got.starting("ratelimit")))
    got = envoy.get("/secret", "plain")
    same("envoy: fields of the daemon", (200, ["2, 2;w=60", "1", "30"], []),
         (got.status, [got.header(name) for name in GRPC_HEADERS], got.starting("x-ratelimit")))
    envoy.get("/secret", "plain")
    got = envoy.get("/secret", "plain")
    # The daemon says when to come back, and not when all is back.
    same("envoy: fields of the daemon in a denial", (429, ["2, 2;w=60", "0", "30"], "30"),
         (got.status, [got.header(name) for name in GRPC_HEADERS], got.header("retry-after")))


def limits_of_other_kinds(envoy, daemon):
    counted = 'tollgate_limit_shadow_denials_total{domain="edge",limit="shadowed"}'
    got = [envoy.get("/key/shadowed") for _ in range(3)]
    same("envoy: a shadow denies nothing and says what is left", [(200, "0")] * 3,
         [(one.status, one.header("x-ratelimit-remaining")) for one in got])
    same("envoy: and counts what it would have denied", 2, daemon.metrics().get(counted))
    got = envoy.get("/key/closed")
    same("envoy: a limit of 0", (429, '0, 0;w=86400;name="closed"', "0"), x_headers(got)[:3])
    got = envoy.get("/key/free")
    same("envoy: an unlimited one", (200, None), x_headers(got)[:2])
    got = envoy.get("/key/unknown")
    same("envoy: no limit for it", (200, None), x_headers(got)[:2])
    got = envoy.get("/elsewhere", "ada")
    same("envoy: no such domain", (200, None), x_headers(got)[:2])


def limits_that_requests_bring(envoy):
    def brought(user, **limit):
        value = Value(struct_value=Struct())
        value.struct_value.update(limit)
        return envoy.get("/brought", user, x_limit=base64.b64encode(value.SerializeToString()))

    for left in ("3", "2", "1", "0"):
        got = brought("vip", requests_per_unit=4, unit="HOUR")
        same(f"envoy: a limit of the metadata, {left} left", (200, "4, 4;w=3600", left),
             x_headers(got)[:3])
    same("envoy: a limit of the metadata denies", 429,
         brought("vip", requests_per_unit=4, unit="HOUR").status)
    same("envoy: no metadata, and the configured limit", '2, 2;w=60;name="per-user"',
         envoy.get("/brought", "common").header("x-ratelimit-limit"))
    got = envoy.get("/written", "eve")
    same("envoy: a limit of the route", (200, "3, 3;w=86400", "2"), x_headers(got)[:3])


def several_units_at_once(envoy):
    got = [envoy.get("/five", "ada") for _ in range(3)]
    same("envoy: five at once", [(200, "7"), (200, "2"), (429, "0")],
         [(one.status, one.header("x-ratelimit-remaining")) for one in got])
    got = [envoy.get("/cost", "ada", x_cost=cost) for cost in ("7", "4", "3", "1")]
    same("envoy: as many as a header says", [(200, "3"), (429, "0"), (200, "0"), (429, "0")],
         [(one.status, one.header("x-ratelimit-remaining")) for one in got])

    def one_by_one(path, times, **request):
        """What each finds, once all that the one before it left behind was counted."""
        calls = envoy.stat(CALLS)
        found = []
        for n in range(times):
            got = envoy.get(path, "ada", **request)
            found.append((got.status, got.header("x-ratelimit-remaining")))
            # One call for each begins, and one for each ends.
            wait("the end of a request is counted", lambda: envoy.stat(CALLS) >= calls + 2 * n + 2)
        return found

    same("envoy: bytes are paid when they are known", [(200, "999"), (200, "598"), (200, "197")],
         one_by_one("/bytes", 3, method="POST", body=b"x" * 400))
    same("envoy: five spent and three given back",
         [(200, "5"), (200, "3"), (200, "1"), (429, "0")], one_by_one("/refund", 4))


def a_secret_is_metadata(envoy):
    same("envoy: the secret as metadata", 200, envoy.get("/secret", "sesame").status)
    same("envoy: without the secret", 500, envoy.get("/no_secret", "sesame").status)


def health_is_seen(envoy, watched):
    def healthy():
        return envoy.stat("cluster.watched.membership_healthy")

    wait("the cluster is healthy", lambda: healthy() == 1)
    watched.terminate()
    start = time.monotonic()
    wait("the cluster is unhealthy", lambda: healthy() == 0)
    same("envoy: a drain is seen by the health check, within the notice", True,
         time.monotonic() - start < 0.9 and watched.process.poll() is None)


def no_answer_is_a_failure_mode(envoy, daemon):
    got = envoy.get("/late", "ada")
    same("envoy: no answer in time, and nothing may pass", 500, got.status)
    same("envoy: it is counted as an error", 1, errors(envoy, "in_no_time"))

    before = errors(envoy, "with_headers")
    daemon.kill()
    got = [envoy.get("/two", "dan") for _ in range(5)]
    same("envoy: no daemon, and requests pass", [(200, None)] * 5,
         [x_headers(one)[:2] for one in got])
    same("envoy: and are counted as errors, and as let pass", (before + 5, 5),
         (errors(envoy, "with_headers"),
          envoy.stat("cluster.app.ratelimit.with_headers.failure_mode_allowed")))
    got = envoy.get("/deny", "dan")
    same("envoy: no daemon, and requests are refused if it is to be so", 503, got.status)

    Daemon("envoy.again", "--config", LIMITS, at={"grpc": daemon.grpc})
    # Envoy connects anew with the next request.
    wait("the daemon is found again", lambda: envoy.get("/deny", "eve").status == 200)
    same("envoy: a daemon that is back limits again", [200, 200, 429],
         [envoy.get("/two", "dan").status for _ in range(3)])


def a_restart_is_not_noticed(envoy, old):
    """Requests go on while a successor takes over the address, three times."""
    counts = {}
    ending = threading.Event()

    def ask():
        mine = {}
        connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=10)
        while not ending.is_set():
            connection.request("GET", "/load")
            response = connection.getresponse()
            response.read()
            mine[response.status] = mine.get(response.status, 0) + 1
        for status, count in mine.items():
            counts[status] = counts.get(status, 0) + count

    def asked():
        return sum(envoy.stat(f"cluster.app.ratelimit.under_load.{code}")
                   for code in ("ok", "over_limit", "error"))

    def await_requests(more):
        so_far = asked()
        wait("requests go on", lambda: asked() >= so_far + more)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    exits = []
    for n in range(3):
        await_requests(500)
        new = Daemon(f"envoy.load{n}", "--config", LIMITS, "--reuse-port", at=old.ports)
        await_requests(100)
        exits.append(old.end())
        await_requests(500)
        old = new
    ending.set()
    for thread in threads:
        thread.join()
    print(f"  {counts}")
    same("envoy: restarts under load: the daemons exit with 0", [0, 0, 0], exits)
    same("envoy: restarts under load: every request is answered", set(), set(counts) - {200, 429})
    same("envoy: restarts under load: none passes for want of an answer", 0,
         errors(envoy, "under_load"))


def errors(envoy, stat_prefix):
    return envoy.stat(f"cluster.app.ratelimit.{stat_prefix}.error")


def x_headers(got):
    names = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
    return (got.status, *(got.header(name) for name in names))


main()
