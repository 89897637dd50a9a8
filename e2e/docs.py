"""What the documents show is what comes: their commands are run, with other ports, and their
answers are compared."""

import os
import pathlib
import re
import subprocess

from checks import same
from daemons import Daemon
from envoys import Envoy

ROOT = pathlib.Path(os.environ["E2E"]).parent


def main():
    behind_envoy()
    by_grpcurl()


def behind_envoy():
    policy = ROOT / "examples/envoy/ratelimit.yaml"
    daemon = Daemon("docs", "--config", str(policy))
    config = (ROOT / "examples/envoy-proxy.yaml").read_text()
    same("docs: Envoy's ports", {"10000", "10001", "8081"},
         set(re.findall(r"port_value: (\d+)", config)))
    # What is behind it has a socket in place of a port that two places would have to agree on.
    app = "socket_address: { address: 127.0.0.1, port_value: 10001 }"
    config = config.replace(app, 'pipe: { path: "${WORK}/docs.sock" }')
    config = config.replace("port_value: 10000", "port_value: 0").replace("8081", "${GRPC}")
    # A slow machine gets more time than the default.
    config = config.replace("domain: edge", "domain: edge\n              timeout: 2s")
    config += "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n"
    envoy = Envoy("docs", config, GRPC=daemon.grpc)

    document = (ROOT / "docs/envoy.md").read_text()
    commands, shown = block(document, "sh"), block(document, "console")
    loop = next(line for line in commands.splitlines() if line.startswith("for "))
    said = run(loop.replace("localhost:10000", f"127.0.0.1:{envoy.port}"))
    answers = [f"HTTP{answer}".strip() for answer in said.split("HTTP")[1:]]
    first, last = shown.split("…\n")
    same("docs: the first answer behind Envoy", first.strip(), answers[0])
    same("docs: all of them", [200] * 5 + [429], [int(answer.split()[1]) for answer in answers])
    same("docs: the sixth", last.strip(), answers[-1])
    readme = (ROOT / "README.md").read_text().split("## Put it behind Envoy")[1]
    same("docs: README shows the same", first.strip(), block(readme, "console").strip())


def by_grpcurl():
    daemon = Daemon("docs.grpcurl", "--config", str(ROOT / "examples/limits.toml"))
    document = (ROOT / "docs/protocol.md").read_text().split("## gRPC\n")[1]
    command, shown = block(document, "console").split("\n{")
    command = command.removeprefix("$ ").replace("localhost:8081", f"127.0.0.1:{daemon.grpc}")
    said = run(f'PATH={os.environ["TOOLS"]}:$PATH; {command}')
    same("docs: grpcurl", ("{" + shown).split(), said.split())


def block(text, language):
    """The first block of a language."""
    return re.search(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]


def run(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


main()
