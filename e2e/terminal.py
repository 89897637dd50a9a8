"""redis-cli at a terminal: it asks for COMMAND DOCS first, and shows what each reply is."""

import os
import pty
import re
import select
import time

from checks import RESP, same


def session(lines, seconds=10):
    """What is on the screen when these were typed and the client has ended."""
    child, screen = pty.fork()
    if child == 0:
        os.environ["TERM"] = "dumb"
        os.execvp("redis-cli", ["redis-cli", "-p", str(RESP)])
    os.write(screen, "".join(f"{line}\n" for line in lines).encode())
    shown, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([screen], [], [], 0.1)[0]:
            continue
        try:
            shown += os.read(screen, 65536)
        except OSError:  # The client has ended.
            os.waitpid(child, 0)
            return shown.decode()
    os.kill(child, 9)
    return f"did not end: {shown!r}"


shown = session(["PING", "CL.THROTTLE tty 0 1 60", "quit"])
numbers = [rf"{place}\) \(integer\) {number}" for place, number in enumerate([0, 1, 0, -1, 60], 1)]
wanted = r"PONG.*" + r"\s+".join(numbers)
same("redis-cli at a terminal", True, bool(re.search(wanted, shown, re.DOTALL)) or shown)
