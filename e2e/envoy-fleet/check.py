"""Three daemons that are one fleet, and an Envoy in front of each of two of them: whoever asks
through both has one limit, and not two.

limits.toml beside it has the limits, envoy.yaml a route for each.
"""

import pathlib
import threading
import time

from checks import same
from daemons import Fleet
from envoys import Envoy

HERE = pathlib.Path(__file__).parent
BURST = 30
RATE, SECONDS = 200, 4


def main():
    daemons = Fleet("envoy-fleet", 3, str(HERE / "limits.toml")).daemons
    config = (HERE / "envoy.yaml").read_text()
    envoys = [Envoy(f"envoy-fleet-{n}", config, NAME=f"envoy-fleet-{n}", GRPC=daemons[n].grpc)
              for n in (0, 1)]
    one_burst_through_both(envoys)
    one_rate_through_both(envoys)
    one_limit_when_its_daemon_dies(daemons, envoys)


def one_burst_through_both(envoys):
    """Asked in turn through both until neither lets anything pass."""
    passed, denied, statuses = 0, 0, set()
    while denied < 100 and passed < 3 * BURST:
        got = envoys[(passed + denied) % 2].get("/user", "ada").status
        statuses.add(got)
        passed += got == 200
        denied = 0 if got == 200 else denied + 1
        time.sleep(0.005)
    print(f"  {passed} passed of a burst of {BURST}")
    same("envoy: one burst through two daemons", (True, {200, 429}),
         (BURST * 9 // 10 <= passed <= BURST, statuses))


def one_rate_through_both(envoys):
    """Each is asked for more than the fleet permits, at the same time."""
    passed, began = through_both(envoys, "bob", lambda: None)
    seconds = time.monotonic() - began
    bound = 20 + RATE * seconds
    print(f"  {passed} passed of {bound:.0f} in {seconds:.1f} s")
    same("envoy: one rate through two daemons", True, bound * 0.8 <= passed <= bound)


def one_limit_when_its_daemon_dies(daemons, envoys):
    """The third daemon, which may own the key, is killed meanwhile."""
    passed, began = through_both(envoys, "cyd", daemons[2].kill)
    seconds = time.monotonic() - began
    bound = 20 + RATE * seconds
    print(f"  {passed} passed of {bound:.0f} in {seconds:.1f} s")
    same("envoy: one rate while a daemon dies", True, bound * 0.4 <= passed <= bound)


def through_both(envoys, user, meanwhile):
    """How many requests of four clients passed, and since when they asked."""
    passed = []
    began = time.monotonic()

    def ask(envoy):
        mine = 0
        while time.monotonic() < began + SECONDS:
            mine += envoy.get("/service", user).status == 200
        passed.append(mine)

    threads = [threading.Thread(target=ask, args=(envoy,)) for envoy in envoys * 2]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 4)
    meanwhile()
    for thread in threads:
        thread.join()
    return sum(passed), began


main()
