"""Daemons for the Python parts, at free ports; they end with the part."""

import atexit
import os
import re
import signal
import subprocess
import time
import urllib.request

WAIT_SECONDS_MAX = 20


class Daemon:
    """A daemon that listens. `at` is a face's port, if it is not to be a free one."""

    def __init__(self, name, *options, at=None):
        log = os.path.join(os.environ["WORK"], f"{name}.log")
        command = [os.environ["TOLLGATE_BIN"], "serve", *options]
        for face in FACES:
            command += [f"--{face}", f"127.0.0.1:{(at or {}).get(face, 0)}"]
        with open(log, "w") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
        atexit.register(self.kill)
        self.ports = wait(f"{name} listens", lambda: self.listening(log))

    def listening(self, log):
        with open(log) as lines:
            said = lines.read()
        if self.process.poll() is not None:
            raise SystemExit(f"the daemon ended:\n{said}")
        ports = {face: int(port) for face, port in LISTENING.findall(said)}
        return ports if len(ports) == len(FACES) else None

    @property
    def grpc(self):
        return self.ports["grpc"]

    def metrics(self, secret=None):
        """Each sample by its name and labels, as they are written."""
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        url = f"http://127.0.0.1:{self.ports['http']}/metrics"
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=5) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Asks it to end, and returns what it exits with."""
        self.terminate()
        return self.process.wait(WAIT_SECONDS_MAX)


def wait(what, condition):
    """Waits for something that is true, and returns it."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < end:
        got = condition()
        if got:
            return got
        time.sleep(0.01)
    raise SystemExit(f"waited in vain: {what}")


FACES = ("http", "resp", "grpc")
LISTENING = re.compile(r'listening face="(\w+)" address=.*:(\d+)$', re.MULTILINE)
