"""Daemons for the Python parts, at free ports; they end with the part."""

import atexit
import os
import pathlib
import re
import shutil
import signal
import socket
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


class Fleet:
    """Daemons of one fleet, all of which know of each other; the first begins with `limits`."""

    def __init__(self, name, count, limits):
        self.name, self.limits = name, limits
        self.peers = [free_port() for _ in range(count)]
        work = pathlib.Path(os.environ["WORK"])
        for place in range(count):
            shutil.rmtree(work / f"{name}-{place}", ignore_errors=True)
        self.daemons = []
        for place in range(count):
            self.daemons.append(self.member(place))
        whole = f"the ring has turned epoch={count} members={count}"
        for place in range(count):
            log = work / f"{name}-{place}.log"
            wait("the fleet is whole", lambda log=log: whole in log.read_text())

    def member(self, place, at=None):
        name, peer = f"{self.name}-{place}", f"127.0.0.1:{self.peers[place]}"
        begins = ["--join", f"127.0.0.1:{self.peers[0]}"] if place else ["--config", self.limits]
        data = os.path.join(os.environ["WORK"], name)
        return Daemon(name, "--peer", peer, "--data", data, *begins, at=at)

    def again(self, place):
        """Starts a member that has ended as it was, with the ports that it had."""
        self.daemons[place] = self.member(place, self.daemons[place].ports)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


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
