"""Three daemons that count a limit in one Redis: offered five times what it gives for three windows,
then while the Redis is killed, stopped and started again; what they say of it; what is left at the
end."""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

from checks import same
from daemons import Daemon, wait

THRESHOLD, WINDOW = 1_000, 10
POLICY = """
[[limit]]
name = "api"
key = ["tenant"]
rate = "{threshold}/{window}s"
guarantee = "tally"

[tally]
redis = ["redis://127.0.0.1:{port}"]
max_read_outage = "1s"
"""


class Redis:
    """A redis-server that can be killed, stopped and started again."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = tempfile.mkdtemp(dir=os.environ["WORK"])
        self.start()

    def start(self):
        command = ["redis-server", "--port", str(self.port), "--save", "", "--dir", self.folder]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait("the Redis answers", lambda: self.say("PING") == "PONG")

    def say(self, *words):
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def counted(self, tenant):
        names = self.say("KEYS", f"*{{{tenant}}}*").split()
        return sum(int(self.say("GET", name)) for name in names)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


def offer(daemons, tenant, rate, seconds):
    """Asks daemons in turn, evenly; returns when requests passed, how many were asked, and the
    longest time of one."""
    body = json.dumps({"descriptors": [{"entries": {"tenant": tenant}}]})
    start, passed, asked, longest = time.monotonic() + 0.1, [], [], []

    def ask(port, first):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        count, slowest = 0, 0.0
        while True:
            at = start + first + count * len(daemons) / rate
            if at >= start + seconds:
                break
            time.sleep(max(0.0, at - time.monotonic()))
            began = time.monotonic()
            connection.request("POST", "/v1/check", body)
            if json.loads(connection.getresponse().read())["allowed"]:
                passed.append(time.monotonic() - start)
            slowest = max(slowest, time.monotonic() - began)
            count += 1
        asked.append(count)
        longest.append(slowest)

    threads = [
        threading.Thread(target=ask, args=(daemon.ports["http"], place / rate))
        for place, daemon in enumerate(daemons)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return passed, sum(asked), max(longest)


def stores(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.ports['http']}/v1/limits") as answer:
        return json.load(answer)["stores"][0]


redis = Redis()
policy = os.path.join(os.environ["WORK"], "tally.toml")
with open(policy, "w") as file:
    file.write(POLICY.format(threshold=THRESHOLD, window=WINDOW, port=redis.port))
daemons = [Daemon(f"tally-{number}", "--config", policy) for number in range(3)]

# Three windows: at most what docs/bounds.md derives for ticks of 250 ms and this load, and a machine
# that comes to a tick a second late, which the last part is for.
wait("a window begins", lambda: time.time() % WINDOW < 0.05)
passed, asked, longest = offer(daemons, "acme", 5 * THRESHOLD / WINDOW, 3 * WINDOW)
windows = [sum(1 for at in passed if number <= at // WINDOW < number + 1) for number in range(3)]
print(f"# admitted {windows} of {asked} in windows of {THRESHOLD}; longest {1000 * longest:.0f} ms")
same("tally: three windows admit about three thresholds",
     True, 2.4 * THRESHOLD <= len(passed) <= 3.5 * THRESHOLD)

# Unit by unit, and none for ever.
passed, _, _ = offer(daemons, "exact", 90, 1)
wait("all is written", lambda: redis.counted("exact") >= len(passed))
same("tally: the Redis has what was admitted, unit by unit", len(passed), redis.counted("exact"))
left = int(redis.say("TTL", redis.say("KEYS", "*{exact}*").split()[0]))
same("tally: a counter expires", True, WINDOW <= left <= 3 * WINDOW)

# A Redis that dies, and one that says nothing: nobody waits, and who is within the limit passes.
for what, harm, heal in [
    ("killed", redis.kill, redis.start),
    ("stopped", lambda: redis.signal(signal.SIGSTOP), lambda: redis.signal(signal.SIGCONT)),
]:
    tenant = f"while-{what}"
    offer(daemons, tenant, 30, 1)
    harm()
    passed, asked, longest = offer(daemons, tenant, 30, 4)
    same(f"tally: nobody is denied while the Redis is {what}", asked, len(passed))
    same(f"tally: nobody waits while the Redis is {what}", True, longest < 2)
    heal()
    before = redis.counted(tenant)
    offer(daemons, tenant, 30, 0.5)
    wait(f"counts go on after it was {what}", lambda: redis.counted(tenant) > before)
    wait("the daemons say so", lambda: all(stores(one)["connected"] for one in daemons))
same("tally: a failure is told", True, stores(daemons[0])["last_failure"] is not None)
errors = daemons[0].metrics()
same("tally: errors are counted by kind", True,
     errors['tollgate_tally_store_errors_total{store="0",kind="closed"}']
     + errors['tollgate_tally_store_errors_total{store="0",kind="connect"}'] > 0)

# What was counted last is written before a daemon ends.
before = redis.counted("last")
passed, _, _ = offer(daemons[:1], "last", 20, 0.2)
same("tally: a daemon ends with 0", 0, daemons[0].end())
same("tally: what it counted last is written", before + len(passed), redis.counted("last"))
redis.kill()
