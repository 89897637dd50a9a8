"""The same bytes to redis-server and to the daemon: what both know, both answer alike."""

import os
import socket
import subprocess
import time

from checks import RESP, same

# What was sent on one connection; all of it is answered until the connection ends.
CASES = {
    "PING": b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nping\r\n$2\r\nhi\r\n",
    "a line": b"PING\r\n  ECHO   'a b'\r\nECHO \"\\x41\\n\"\n\r\n",
    "nothing asked": b"*0\r\n*-1\r\n\r\nPING\r\n",
    "QUIT": b"PING\r\nQUIT\r\nPING\r\n",
    "RESET": b"HELLO 3\r\nRESET\r\nCLIENT GETNAME\r\nQUIT\r\n",
    "names": b"CLIENT GETNAME\r\nCLIENT SETNAME e2e\r\nCLIENT GETNAME\r\nCLIENT SETNAME 'a b'\r\n",
    "settings": b"CONFIG GET appendonly\r\nHELLO 3\r\nCONFIG GET appendonly\r\nCLIENT GETNAME\r\n",
    "HELLO": b"HELLO 4\r\nHELLO x\r\nHELLO 3 X\r\nHELLO 2 SETNAME 'a b'\r\n",
    "a wrong password": b"AUTH user secret\r\nHELLO 3 AUTH user secret\r\n",
    "a database": b"SELECT 0\r\nSELECT 99\r\n",
    "unknown commands": b"FOO\r\nFOO 1 2\r\nECHO\r\nPING 1 2\r\nSELECT\r\nDBSIZE 1\r\n",
    "unknown subcommands": b"CLIENT FOO\r\nCONFIG FOO\r\n",
    "no bulk string": b"PING\r\n*1\r\nPING\r\n",
    "no array": b"*x\r\n",
    "no length": b"*1\r\n$x\r\n",
    "a negative length": b"*1\r\n$-1\r\n",
    "an open quote": b"PING\r\nECHO \"a\r\nPING\r\n",
    "a quote in a word": b"ECHO \"a\"b\r\n",
}


def answer(port, sent):
    """All that is answered; the server ends the connection, or is told that we have said all."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stream:
        stream.sendall(sent)
        stream.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := stream.recv(65536):
            got += chunk
        return got


def without_ids(reply):
    """HELLO tells the connection's number, which is each server's own."""
    head, found, rest = reply.partition(b"$2\r\nid\r\n:")
    return head + found + rest.partition(b"\r\n")[2] if found else reply


def start_redis():
    """A server of our own, and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    place = ["--dir", os.environ["WORK"], "--daemonize", "no"]
    server = subprocess.Popen(["redis-server", *options, *place], stdout=subprocess.DEVNULL)
    for _ in range(200):
        try:
            answer(port, b"PING\r\n")
            return server, port
        except OSError:
            time.sleep(0.05)
    server.kill()
    raise TimeoutError("redis-server does not listen")


server, port = start_redis()
try:
    for name, sent in CASES.items():
        wanted, got = (without_ids(answer(at, sent)) for at in (port, RESP))
        same(f"as redis-server: {name}", wanted, got)
finally:
    server.terminate()
    server.wait()
