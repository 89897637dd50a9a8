"""Clients that ask at a rate, over connections that stay open, and count what passed."""

import os
import socket
import threading
import time

CONNECTIONS = 2
# A client that was held up makes up for it, but not for more than this.
BEHIND_SECONDS_MAX = 0.25


class Load:
    """Asks ports at rates of their own until it is stopped; both may change meanwhile."""

    def __init__(self, request, **offered):
        self.request = request
        self.rates, self.ports = {}, {}
        self.answers = {name: [] for name in offered}
        self.is_over = False
        for name, (port, rate) in offered.items():
            self.ports[name], self.rates[name] = port, rate
        self.threads = [threading.Thread(target=self.ask, args=(name,), daemon=True)
                        for name in offered for _ in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def offer(self, **rates):
        self.rates.update(rates)

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def ask(self, name):
        connection, due, answers = None, time.monotonic(), self.answers[name]
        while not self.is_over:
            rate = self.rates[name]
            if rate == 0:
                due = time.monotonic() + 0.01
            time.sleep(max(0.0, due - time.monotonic()))
            if rate == 0:
                continue
            due = max(due + CONNECTIONS / rate, time.monotonic() - BEHIND_SECONDS_MAX)
            try:
                connection = connection or Connection(self.ports[name])
                answers.append((time.monotonic(), connection.ask(self.request)))
            except OSError:
                # Whoever answers there is gone; perhaps it comes back.
                connection, due = None, time.monotonic() + 0.05

    def times(self, name, status=200):
        """When requests were answered like this, in order."""
        return sorted(at for at, got in list(self.answers[name]) if got == status)

    def statuses(self):
        return {status for answers in self.answers.values() for _, status in list(answers)}

    def passed(self, name, begin, end):
        return sum(begin <= at < end for at in self.times(name))

    def asked(self, name, begin, end):
        return sum(begin <= at < end for at, _ in list(self.answers[name]))

    def held_up(self, name, begin, end, seconds):
        """For how long nobody asked, gaps of less than `seconds` not counted: what a bucket that is
        full after that time cannot let pass."""
        asked = sorted(at for at, _ in list(self.answers[name]) if begin <= at < end)
        gaps = (later - at for at, later in zip([begin, *asked], [*asked, end]))
        return sum(max(0.0, gap - seconds) for gap in gaps)

    def per_second(self, name, begin, end):
        """How many passed in each second."""
        return [self.passed(name, begin + second, begin + second + 1)
                for second in range(int(end - begin + 0.5))]


class Connection:
    """One request after the other, without what a library does for each."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def ask(self, request):
        """The status that a request is answered with."""
        self.socket.sendall(request)
        while b"\r\n\r\n" not in self.received:
            self.receive()
        head, self.received = self.received.split(b"\r\n\r\n", 1)
        lines = head.lower().split(b"\r\n")
        length = sum(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        while len(self.received) < length:
            self.receive()
        self.received = self.received[length:]
        return int(head[9:12])

    def receive(self):
        got = self.socket.recv(65536)
        if not got:
            raise ConnectionError("closed")
        self.received += got


def post(path, body):
    return (f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n\r\n{body}"
            .encode())


def get(path):
    return f"GET {path} HTTP/1.1\r\nhost: here\r\n\r\n".encode()


def cpu_seconds(process):
    """What a process has used so far."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
