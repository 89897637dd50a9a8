"""Two Envoys that have one limit between them by assignment: each denies by itself what is above
its part, the parts follow the load, and both go on without the daemon until what they have ends.

limits.toml beside it has the limit, envoy.yaml the filter.
"""

import pathlib
import time

from checks import same
from daemons import Daemon, wait
from envoys import Envoy
from paced import Load, cpu_seconds, get

HERE = pathlib.Path(__file__).parent
LIMITS = str(HERE / "limits.toml")
RATE, BURST, ENVOYS = 100, 10, 2
COUNTED_SECONDS = 15
# Envoy's, whatever is configured; an assignment stands for three of them.
INTERVAL, TTL = 5, 15
# An Envoy's bucket holds what comes in this time.
BUCKET_SECONDS = 0.1
# What an assignment ends in: allowing everything unless the Envoy was told something else.
DENIES = ("expired_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL }, "
          "expired_assignment_behavior_timeout: 300s }")


def main():
    assert RATE * COUNTED_SECONDS >= 100 * (BURST + ENVOYS)
    daemon = Daemon("envoy-quota", "--config", LIMITS)
    config = (HERE / "envoy.yaml").read_text()
    edges = {name: Envoy(f"envoy-quota-{name}", config, NAME=f"envoy-quota-{name}",
                         GRPC=daemon.grpc, EXPIRED=expired)
             for name, expired in (("a", ""), ("b", DENIES))}
    began = time.monotonic()
    load = Load(get("/"), a=(edges["a"].port, 150), b=(edges["b"].port, 50))
    time.sleep(2 * INTERVAL + 1)
    print(f"  from the start: {load.per_second('a', began, time.monotonic())} at a, "
          f"{load.per_second('b', began, time.monotonic())} at b")
    # Both began at once, and one has all of it until it is told to give up half.
    least = min(load.passed(name, began + 2, began + INTERVAL) for name in edges)
    same("envoy quota: who comes second waits for no report of the first", True,
         least >= RATE / ENVOYS * (INTERVAL - 2) * 0.9)
    cpu, at = cpu_seconds(daemon.process), time.monotonic()
    divided_by_demand(load, a=0.75, b=0.25)
    used = (cpu_seconds(daemon.process) - cpu) / (time.monotonic() - at)
    print(f"  CPU of the daemon: {used:.2%}")
    moved = time.monotonic()
    load.offer(a=50, b=150)
    time.sleep(2 * INTERVAL + 1)
    print(f"  since it was moved: {load.per_second('a', moved, time.monotonic())} at a, "
          f"{load.per_second('b', moved, time.monotonic())} at b")
    divided_by_demand(load, a=0.25, b=0.75)
    envoys_deny_by_themselves(load, edges, daemon, time.monotonic() - began)
    daemon = without_a_daemon(load, daemon)
    back_with_a_daemon(load, daemon)
    load.stop()
    same("envoy quota: nothing but 200 and 429", {200, 429}, load.statuses())


def divided_by_demand(load, **parts):
    begin = time.monotonic()
    time.sleep(COUNTED_SECONDS)
    passed, most, least = counted(load, begin, time.monotonic(), parts)
    total = sum(passed.values())
    print(f"  {total} passed, {passed}; of {RATE * COUNTED_SECONDS} "
          f"(R t = {RATE * COUNTED_SECONDS} >= 100 (B + N) = {100 * (BURST + ENVOYS)}), "
          f"from {least:.0f} to {most:.0f}")
    same(f"envoy quota: the rate within 1 % where the load is {parts}", True,
         least <= total <= most)
    is_fair = all(abs(passed[name] / total - part) <= 0.03 for name, part in parts.items())
    same(f"envoy quota: divided as {parts}", True, is_fair)


def counted(load, begin, end, parts):
    """What passed at each, and within which bounds it should be: 1 %, and nothing for the time in
    which this machine held up who asks."""
    passed = {name: load.passed(name, begin, end) for name in parts}
    lost = sum(load.held_up(name, begin, end, BUCKET_SECONDS / 2) * part * RATE
               for name, part in parts.items())
    rate = RATE * (end - begin)
    # What the buckets held at the beginning.
    return passed, rate * 1.01 + BURST, rate * 0.99 - lost


def envoys_deny_by_themselves(load, edges, daemon, seconds):
    """Whatever passed was seen by what is behind, and nobody asked the daemon about a request."""
    for name, envoy in edges.items():
        passed = len(load.times(name))
        behind = envoy.stat("http.app.downstream_rq_2xx")
        same(f"envoy quota: what {name} denies is seen by nobody behind it", True,
             abs(passed - behind) <= 2 and envoy.stat("http.app.downstream_rq_4xx") == 0)
    metrics = daemon.metrics()
    decisions = ("tollgate_decisions_total{", "tollgate_limit_decisions_total{")
    decided = sum(value for name, value in metrics.items() if name.startswith(decisions))
    reports = metrics["tollgate_quota_reports_total"]
    actions = {name: int(value) for name, value in metrics.items()
               if name.startswith("tollgate_quota_actions_total")}
    print(f"  {reports:.0f} reports in {seconds:.0f} s; {actions}; {decided:.0f} decisions")
    same("envoy quota: the daemon decides about no request", 0, decided)
    # One an interval, and one at the first request.
    most = ENVOYS * (seconds / INTERVAL + 2)
    same("envoy quota: an Envoy reports once in five seconds", True, most * 0.6 <= reports <= most)
    assigned = sum(actions.values())
    same("envoy quota: no more is told than that is worth", True, 0 < assigned <= 4 * most)
    same("envoy quota: two streams with a bucket each", (2, 2),
         (metrics["tollgate_quota_streams"], metrics["tollgate_quota_buckets"]))


def without_a_daemon(load, daemon):
    """What was assigned stands for its TTL; then each does what it was configured to."""
    daemon.kill()
    killed = time.monotonic()
    had = {name: load.passed(name, killed - 4, killed) / 4 for name in ("a", "b")}
    # A machine that stood still made intervals longer, of which the TTL is three.
    ttl = TTL + 3 * max(load.held_up(name, killed - 3 * INTERVAL, killed, 0.25) for name in had)
    # A renewal comes when half of the TTL is over.
    seconds = TTL / 2 - 0.5
    time.sleep(seconds)
    passed, most, _ = counted(load, killed, killed + seconds, {"a": 0.25, "b": 0.75})
    print(f"  without a daemon, {seconds:.1f} s: {passed}; before, a second: {had}")
    lost = {name: load.held_up(name, killed, killed + seconds, BUCKET_SECONDS / 2) for name in had}
    goes_on = all(passed[name] >= had[name] * (seconds - lost[name]) * 0.95 for name in had)
    same("envoy quota: Envoys go on without a daemon", True,
         goes_on and sum(passed.values()) <= most)
    time.sleep(max(0.0, killed + ttl + 3.2 - time.monotonic()))
    end = time.monotonic()
    told = {name: load.per_second(name, killed, end) for name in ("a", "b")}
    print(f"  since the kill: {told['a']} at a, {told['b']} at b")
    same("envoy quota: after its TTL one that was told nothing else allows all",
         load.asked("a", end - 2, end), load.passed("a", end - 2, end))
    same("envoy quota: and one that was told so denies all", 0, load.passed("b", end - 2, end))
    # Since when it has denied nothing, and let nothing pass.
    for name, status in (("a", 429), ("b", 200)):
        ended = max(at for at in load.times(name, status) if at < end) - killed
        print(f"  {name}: its assignment ended {ended:.1f} s after the kill; its TTL was {ttl:.1f}")
        same(f"envoy quota: the assignment of {name} ended with its TTL", True,
             TTL / 2 - 0.5 <= ended <= ttl + 0.5)
    return Daemon("envoy-quota-again", "--config", LIMITS, at=daemon.ports)


def back_with_a_daemon(load, daemon):
    """Envoys come back by themselves at their next tick."""
    began = time.monotonic()
    wait("both streams are back", lambda: daemon.metrics()["tollgate_quota_buckets"] == 2)
    back = time.monotonic()
    print(f"  streams back after {back - began:.1f} s")
    same("envoy quota: streams come back at the next tick", True, back - began <= INTERVAL + 1)
    time.sleep(2 * INTERVAL)
    begin = time.monotonic()
    held_up = load.held_up("a", back + 1, back + INTERVAL - 0.5, BUCKET_SECONDS / 2)
    same("envoy quota: whoever comes back first leaves the other something", True,
         load.passed("a", back + 1, back + INTERVAL - 0.5) >= 20 * (INTERVAL - 1.5 - held_up)
         and load.passed("b", back + 1, back + INTERVAL - 0.5) >= 20 * (INTERVAL - 1.5 - held_up))
    print(f"  since then: {load.per_second('a', began, begin)} at a, "
          f"{load.per_second('b', began, begin)} at b")
    divided_by_demand(load, a=0.25, b=0.75)


main()
