"""grpcio with messages that it has from the daemon by reflection alone: no generated code.

What each kind of request is answered, what is refused and with which status, health through a
drain, and peers that are none.
"""

import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from checks import same
from daemons import Daemon, wait

WORK = pathlib.Path(os.environ["WORK"])
LIMITS = str(pathlib.Path(__file__).parent / "limits")
RLS = "envoy.service.ratelimit.v3.RateLimitService"
ASK = f"/{RLS}/ShouldRateLimit"
SERVICES = [
    "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
]
YEAR, MINUTE = 6, 2


class Client:
    """What a program that knows nothing of the daemon can say to it."""

    def __init__(self, daemon, metadata=()):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{daemon.grpc}", options=OPTIONS)
        self.metadata = metadata
        if metadata:
            intercepted = grpc.intercept_channel(self.channel, Adding(metadata))
        else:
            intercepted = self.channel
        self.described = ProtoReflectionDescriptorDatabase(intercepted)
        self.pool = DescriptorPool(self.described)

    def message(self, name):
        return GetMessageClass(self.pool.FindMessageTypeByName(name))

    def call(self, path, message, **options):
        """Calls a method with a message, or with bytes; returns the answer, or a code and why."""
        service, method = path[1:].split("/")
        if isinstance(message, bytes):
            serialize, reply = bytes, bytes
        else:
            output = self.pool.FindServiceByName(service).FindMethodByName(method).output_type
            serialize, reply = type(message).SerializeToString, GetMessageClass(output).FromString
        options = {"timeout": 10, "metadata": self.metadata, **options}
        try:
            return self.channel.unary_unary(path, serialize, reply)(message, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def request(self, *descriptors, domain="edge", hits=0):
        """`k=v, k=v` each, or a pair of that and its other fields."""
        request = self.message("envoy.service.ratelimit.v3.RateLimitRequest")()
        request.domain, request.hits_addend = domain, hits
        for one in descriptors:
            entries, more = one if isinstance(one, tuple) else (one, {})
            added = request.descriptors.add()
            for entry in filter(None, entries.split(", ")):
                key, value = entry.split("=")
                added.entries.add(key=key, value=value)
            if "hits" in more:
                added.hits_addend.value = more["hits"]
            if "limit" in more:
                added.limit.requests_per_unit, added.limit.unit = more["limit"]
            added.is_negative_hits = more.get("back", False)
        return request

    def ask(self, *descriptors, **more):
        """Whether all passed, and of each its limit and what it has left."""
        return shown(self.call(ASK, self.request(*descriptors, **more)))


class Adding(grpc.StreamStreamClientInterceptor):
    """Reflection's own client takes no metadata."""

    def __init__(self, metadata):
        self.metadata = metadata

    def intercept_stream_stream(self, go_on, details, requests):
        return go_on(details._replace(metadata=self.metadata), requests)


def shown(answer):
    if isinstance(answer, tuple):
        return answer
    statuses = [(status.current_limit.name, status.current_limit.requests_per_unit,
                 CODES[status.code], status.limit_remaining)
                if status.HasField("current_limit") else CODES[status.code]
                for status in answer.statuses]
    return (CODES[answer.overall_code], *statuses)


def main():
    daemon = Daemon("grpc", "--config", LIMITS)
    client = Client(daemon)
    reflection_describes_all(client)
    golden_bytes(client)
    hits_of_all_kinds(client, daemon)
    precedence(client)
    limits_that_requests_bring(client)
    all_or_nothing(client)
    what_is_refused(client, daemon)
    deadlines(client, daemon)
    a_table_of_brought_limits_is_bounded()
    a_secret()
    health_through_a_drain()
    peers_that_say_nothing_more()


def reflection_describes_all(client):
    def known(names):
        return sorted(name for name in names if not name.startswith("grpc.reflection."))

    same("grpc-python: reflection lists the services", SERVICES,
         known(client.described.get_services()))
    stream = client.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ServerReflectionRequest.SerializeToString, ServerReflectionResponse.FromString)
    [answer] = stream(iter([ServerReflectionRequest(list_services="*")]), timeout=10)
    same("grpc-python: and its other version lists the same", SERVICES,
         known(one.name for one in answer.list_services_response.service))
    Response = client.message("envoy.service.ratelimit.v3.RateLimitResponse")
    numbers = {field.name: field.number for field in Response.DESCRIPTOR.fields}
    same("grpc-python: fields have the numbers of the original",
         {"overall_code": 1, "statuses": 2, "response_headers_to_add": 3}, numbers)


def golden_bytes(client):
    two = ("0a046564676512250a0e0a0674656e616e74120461636d650a130a066d6574726963120972656164"
           "5f696f70731803")
    request = client.request("tenant=acme, metric=read_iops", hits=3)
    same("grpc-python: golden bytes of two entries and three hits", two, coded(request))
    same("grpc-python: which are understood", ("OK", ("metric", 100, "OK", 97)),
         shown(client.call(ASK, request)))
    peek = "0a046564676512180a0e0a0674656e616e74120461636d651204082a10031a00"
    request = client.request(("tenant=acme", {"limit": (42, 3), "hits": 0}))
    same("grpc-python: golden bytes of a limit and no hits", peek, coded(request))
    same("grpc-python: which are understood", ("OK", ("", 42, "OK", 42)),
         shown(client.call(ASK, request)))
    back = "0a046564676512160a0e0a0674656e616e74120461636d651a0208022001"
    request = client.request(("tenant=acme", {"hits": 2, "back": True}))
    same("grpc-python: golden bytes of two that are given back", back, coded(request))
    same("grpc-python: which are understood", ("OK", ("tenant", 100, "OK", 100)),
         shown(client.call(ASK, request)))
    Response = client.message("envoy.service.ratelimit.v3.RateLimitResponse")
    answer = Response.FromString(bytes.fromhex("0802120c080212040864100222020811"))
    [status] = answer.statuses
    same("grpc-python: golden bytes of an answer", (("OVER_LIMIT", ("", 100, "OVER_LIMIT", 0)), 17),
         (shown(answer), status.duration_until_reset.seconds))
    sent = client.call(ASK, client.request("tenant=acme").SerializeToString())
    same("grpc-python: an answer has the bytes that others would write", sent.hex(),
         coded(Response.FromString(sent)))


def coded(message):
    return message.SerializeToString(deterministic=True).hex()


def hits_of_all_kinds(client, daemon):
    def left(*descriptor, **more):
        answer = client.ask(*descriptor, **more)
        return answer[1][3] if answer[0] == "OK" else answer

    def keys():
        return daemon.metrics()['tollgate_keys{table="limits"}']

    same("grpc-python: hits absent are one", 9, left("user=absent"))
    same("grpc-python: hits 0 of the request are one", 9, left("user=zero", hits=0))
    before = keys()
    same("grpc-python: hits 0 of a descriptor are none", 10, left(("user=peek", {"hits": 0})))
    same("grpc-python: and make no key", before, keys())
    left(("user=back", {"hits": 3}))
    same("grpc-python: more given back than was spent", 10,
         left(("user=back", {"hits": 100, "back": True})))
    same("grpc-python: and no more than all is there", 9, left("user=back"))
    same("grpc-python: given back to a fresh key", 10,
         left(("user=fresh", {"hits": 1, "back": True})))
    same("grpc-python: the number of the request is each descriptor's that has none",
         ("OK", ("user", 10, "OK", 6), ("user", 10, "OK", 8), ("user", 10, "OK", 10)),
         client.ask("user=all", ("user=two", {"hits": 2}), ("user=none", {"hits": 0}), hits=4))


def precedence(client):
    def found(entries, domain="precedence"):
        return client.ask((entries, {"hits": 0}), domain=domain)[1]

    for entries, name, units in (
        ("k=v", "exact", 1),
        ("k=vx", "pattern", 10),
        ("k=z", "any", 100),
        ("k=v, x=1", "exact-child", 3),
        ("k=z, x=1", "any-child", 50),
    ):
        same(f"grpc-python: {entries} finds {name}", (name, units, "OK", units), found(entries))
    for entries in ("k=vx, x=1", "x=1", "k=z, x=1, y=2", "x=1, k=z"):
        same(f"grpc-python: {entries} finds none", "OK", found(entries))
    same("grpc-python: no such domain", "OK", found("k=v", "elsewhere"))
    client.ask("k=vx", domain="precedence")
    same("grpc-python: a pattern counts each text by itself", [9, 10],
         [found("k=vx")[3], found("k=vy")[3]])


def limits_that_requests_bring(client):
    three = ("shadowed=a", {"limit": (3, MINUTE)})
    answers = [client.ask(three)[1][2:] for _ in range(4)]
    same("grpc-python: a limit that is brought is enforced, on a shadow too",
         [("OK", 2), ("OK", 1), ("OK", 0), ("OVER_LIMIT", 0)], answers)
    same("grpc-python: a limit of 0 that is brought denies",
         ("OVER_LIMIT", ("", 0, "OVER_LIMIT", 0)), client.ask(("user=0", {"limit": (0, MINUTE)})))
    for unit in (0, 7):
        code, why = client.ask("user=unit", ("user=unit", {"limit": (3, unit)}))
        same(f"grpc-python: a limit in unit {unit} is refused", ("INVALID_ARGUMENT", True),
             (code, why.startswith(f"descriptors[1]: limit.unit: {unit} is none of ")))
    same("grpc-python: and nothing is spent", 9, client.ask("user=unit")[1][3])


def all_or_nothing(client):
    client.ask(("user=spent", {"hits": 10}))
    same("grpc-python: one descriptor denies all, and nothing is spent",
         ("OVER_LIMIT", ("user", 10, "OK", 10), ("user", 10, "OVER_LIMIT", 0)),
         client.ask("user=other", "user=spent"))
    same("grpc-python: one descriptor twice pays twice", 8, client.ask("user=2", "user=2")[2][3])


def what_is_refused(client, daemon):
    many = ["user=many"] * 1000
    code, why = client.ask(*many, "user=many")
    same("grpc-python: 1001 descriptors are too many",
         ("INVALID_ARGUMENT", "descriptors: more than 1000"), (code, why))
    same("grpc-python: and nothing is spent", 9, client.ask("user=many")[1][3])
    same("grpc-python: 1000 are not", ("OVER_LIMIT", 1001),
         (lambda answer: (answer[0], len(answer)))(client.ask(*many)))
    same("grpc-python: an entry without a key is refused by its place",
         ("INVALID_ARGUMENT", "descriptors[1]: entry 0 has no name"),
         client.ask("user=nameless", "=x", "user=nameless"))
    same("grpc-python: and nothing is spent", 9, client.ask("user=nameless")[1][3])
    same("grpc-python: no entries",
         ("INVALID_ARGUMENT", "descriptors[0]: entries: must not be empty"), client.ask(""))
    same("grpc-python: no descriptors",
         ("INVALID_ARGUMENT", "descriptors: must not be empty"), client.ask())
    same("grpc-python: no domain",
         ("INVALID_ARGUMENT", "domain: must not be empty"), client.ask("user=a", domain=""))

    def code(*arguments, **options):
        answer = client.call(*arguments, **options)
        return answer[0] if isinstance(answer, tuple) else "OK"

    # A domain that is no text, and a length that is none.
    for garbage in (b"\x0a\x02\xff\xfe", b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\xff\xff"):
        same(f"grpc-python: garbage, {garbage.hex()}", "INVALID_ARGUMENT", code(ASK, garbage))
    good = client.request("user=a")
    same("grpc-python: a compressed message", "UNIMPLEMENTED",
         code(ASK, client.request("user=" + "x" * 1000), compression=grpc.Compression.Gzip))
    same("grpc-python: a message of 3 MiB", "RESOURCE_EXHAUSTED",
         code(ASK, client.request("user=" + "x" * (3 << 20))))
    same("grpc-python: an unknown method", "UNIMPLEMENTED", code(f"/{RLS}/Unknown", b""))
    same("grpc-python: an unknown service", "UNIMPLEMENTED", code("/unknown/Unknown", b""))
    same("grpc-python: and it goes on", "OK", code(ASK, good))
    at = f"http://127.0.0.1:{daemon.grpc}{ASK}"
    at = f"http://127.0.0.1:{daemon.grpc}{ASK}"
    same("grpc-python: curl, which speaks HTTP/2 but no gRPC", "415",
         curl("--http2-prior-knowledge", "-o", os.devnull, "-w", "%{http_code}", at))
    same("grpc-python: curl, which speaks HTTP/1.1, is hung up on", "000",
         curl("-o", os.devnull, "-w", "%{http_code}", at))


def curl(*arguments):
    return subprocess.run(["curl", "-sS", "--max-time", "10", *arguments], check=False,
                          capture_output=True, text=True).stdout


def deadlines(client, daemon):
    def spent():
        return int(daemon.metrics()[ALLOWED])

    request = client.request("counted=late")
    before = spent()
    def late(answers):
        """How many were, if none failed in another way."""
        codes = [answer[0] for answer in answers if isinstance(answer, tuple)]
        return len(codes) if set(codes) <= {"DEADLINE_EXCEEDED"} else codes

    # It is stopped, so that all are late, and finds them when it goes on.
    daemon.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: client.call(ASK, request, timeout=0.2), range(20)))
    daemon.process.send_signal(signal.SIGCONT)
    same("grpc-python: a stopped daemon is late", 20, late(answers))
    answers = [client.call(ASK, request, timeout=timeout)
               for timeout in [1e-6] * 100 + [0.0008] * 400]
    some = late(answers)
    # All that were sent have been read, since connections keep their order.
    [status] = client.call(ASK, request).statuses
    took = spent() - before
    print(f"  {some} of 500 calls were late, and {took} of 521 counted")
    same("grpc-python: each call was counted once or not at all", (True, 20000 - took),
         (501 - some <= took <= 521, status.limit_remaining))
    # The daemon itself holds to what it is told.
    head = curl("--http2-prior-knowledge", "-D", "-", "-o", os.devnull, "-X", "POST",
                "-H", "content-type: application/grpc", "-H", "te: trailers",
                "-H", "grpc-timeout: 0n", f"http://127.0.0.1:{daemon.grpc}{ASK}")
    same("grpc-python: a deadline that is over when it arrives", True, "grpc-status: 4\n" in head)


def a_table_of_brought_limits_is_bounded():
    daemon = Daemon("grpc.brought", "--config", LIMITS)
    client = Client(daemon)

    def bring(numbers):
        return client.ask(*((f"user={n}", {"limit": (n, YEAR)}) for n in numbers))

    for first in range(1, 4001, 1000):
        bring(range(first, first + 1000))
    same("grpc-python: 4096 different limits can be brought", "OK", bring(range(4001, 4097))[0])
    same("grpc-python: one more is refused", "RESOURCE_EXHAUSTED", bring([1, 4097])[0])
    same("grpc-python: and spends nothing", ("", 2, "OK", 0), bring([2])[1])
    client.channel.close()


def a_secret():
    secret = WORK / "grpc.secret"
    secret.write_text("open sesame\n")
    daemon = Daemon("grpc.secret", "--config", LIMITS, "--secret-file", str(secret))
    shut = Client(daemon)
    got = shut.call(ASK, b"")
    same("grpc-python: without the secret", "UNAUTHENTICATED", got[0])
    same("grpc-python: health needs none", b"\x08\x01",
         shut.call("/grpc.health.v1.Health/Check", b""))
    wrong = shut.call(ASK, b"", metadata=(("authorization", "Bearer open"),))
    same("grpc-python: a wrong secret", "UNAUTHENTICATED", wrong[0])
    client = Client(daemon, metadata=(("authorization", "Bearer open sesame"),))
    same("grpc-python: with the secret", ("OK", ("user", 10, "OK", 9)), client.ask("user=a"))
    for one in (shut, client):
        one.channel.close()


def health_through_a_drain():
    daemon = Daemon("grpc.health", "--config", LIMITS, "--notice-seconds", "1")
    client = Client(daemon)
    Asked = client.message("grpc.health.v1.HealthCheckRequest")
    Told = client.message("grpc.health.v1.HealthCheckResponse")

    def check(service):
        answer = client.call("/grpc.health.v1.Health/Check", Asked(service=service))
        return answer[0] if isinstance(answer, tuple) else Told.ServingStatus.Name(answer.status)

    same("grpc-python: health", ["SERVING", "SERVING", "SERVING", "NOT_FOUND"],
         [check(one) for one in ("", RLS, "ratelimit", "unknown")])
    watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch", Asked.SerializeToString,
                                        Told.FromString)
    unknown = watch(Asked(service="unknown"), timeout=10)
    same("grpc-python: watching what is unknown", "SERVICE_UNKNOWN",
         Told.ServingStatus.Name(next(unknown).status))
    unknown.cancel()

    told = queue.Queue()

    def follow():
        try:
            for answer in watch(Asked(service=RLS), timeout=20):
                told.put(Told.ServingStatus.Name(answer.status))
        except grpc.RpcError as error:
            told.put(error.code().name)

    threading.Thread(target=follow, daemon=True).start()
    same("grpc-python: watching", "SERVING", told.get(timeout=10))
    daemon.terminate()
    same("grpc-python: watching a drain", "NOT_SERVING", told.get(timeout=10))
    same("grpc-python: which a check sees too, while there is notice", ("NOT_SERVING", "OK"),
         (check(""), client.ask("user=a")[0]))
    same("grpc-python: watching the end", "UNAVAILABLE", told.get(timeout=10))
    same("grpc-python: after which the daemon exits with 0", 0, daemon.process.wait(10))
    client.channel.close()


def peers_that_say_nothing_more():
    """One answers no ping, as if it were gone; another is as idle, and alive."""
    daemon = Daemon("grpc.idle", "--config", LIMITS, "--request-seconds", "1")
    client = Client(daemon)
    client.ask("user=a")

    def connections():
        return daemon.metrics()['tollgate_connections{face="grpc"}']

    gone = socket.create_connection(("127.0.0.1", daemon.grpc))
    start = time.monotonic()
    gone.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
    wait("both are connected", lambda: connections() == 2)
    gone.settimeout(10)
    while gone.recv(4096):
        pass
    same("grpc-python: a peer that answers no ping is left", True, time.monotonic() - start < 4)
    wait("one is connected", lambda: connections() == 1)
    opened = 'tollgate_connections_opened_total{face="grpc"}'
    client.ask("user=a")
    same("grpc-python: one that answers is kept", 2, daemon.metrics()[opened])
    client.channel.close()


ALLOWED = 'tollgate_decisions_total{face="grpc",decision="allowed",reason=""}'
CODES = ("UNKNOWN", "OK", "OVER_LIMIT")
# Messages as large as we like; a connection of its own for each client.
OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))

main()
