"""A load generator for the fleet's collector that leaves it most of the machine: requests are made and compressed beforehand, as the agent would,
and then replayed over a few connections from one loop around epoll, 40 us of CPU a request."""

from __future__ import annotations

import contextlib
import gzip
import random
import selectors
import socket
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sealift.fleet.otlp import encode

OPERATORS = 100  # series of a process, and points of a request
BUCKETS = 20  # with counts, of a point


@dataclass(frozen=True)
class Prepared:
    """Requests as they go over the wire, HTTP's head included."""

    requests: Sequence[bytes]
    plain_bytes: int  # of one body before gzip
    wire_bytes: int  # of one body


def prepare(count: int, processes: int = 400, host: str = "127.0.0.1") -> Prepared:
    """`count` requests of 100 points each, from `processes` processes in turn, numbered as each process numbers its batches."""
    chance = random.Random(0)
    now = time.time_ns()
    plain = []
    for i in range(min(processes, count)):
        resource: dict[str, encode.Value] = {
            "service.name": f"service-{i % 10}", "service.version": "1.0", "service.instance.id": f"instance-{i:08d}", "host.name": f"host-{i:04d}",
            "process.pid": 1000 + i, "telemetry.sdk.name": "sealift", "telemetry.sdk.language": "python", "k8s.pod.name": f"pod-{i:04d}",
        }  # fmt: skip
        points = []
        for j in range(OPERATORS):
            counts = [chance.randrange(1, 300) for _ in range(BUCKETS)]
            named = {"operator": f"aten::op_{j}", "source": "torch", "scope": "function", "model.id": f"model-{i % 10}"}
            attributes = tuple((f"sealift.{k}", v) for k, v in named.items())
            total = sum(counts)
            points.append(encode.Histogram(attributes, total, total // 2, total * 40_000, total * 30_000, 0, 90 + j % 40, counts))
        meters = {"dropped": 0, "overflow": 0, "overhead": 0.002}
        plain.append(encode.metrics_request(resource, _NUMBER, now - 10**10, now, points, meters))
    head = (
        f"POST /v1/metrics HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    )
    mark = encode._varint(_NUMBER)
    requests, wire = [], 0
    for n in range(count):
        numbered = plain[n % len(plain)].replace(mark, encode._varint(_NUMBER + n // len(plain)), 1)
        body = gzip.compress(numbered, 1)
        wire += len(body)
        requests.append(head.encode() % len(body) + body)
    return Prepared(requests, len(plain[0]), wire // count)


_NUMBER = 0x0F3A5C7E9B1D  # the first batch's; so large that its bytes occur nowhere else, and that the following ones are as long


@dataclass(frozen=True)
class Replay:
    acknowledged: int  # requests
    refused: int
    seconds: float
    latencies_s: Sequence[float]  # sorted
    cpu_s: float  # of this process


class _Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.out = memoryview(b"")
        self.answer = b""
        self.sent_at = 0.0

    def send(self) -> bool:
        """Whether all of it has gone."""
        with contextlib.suppress(BlockingIOError):
            self.out = self.out[self.socket.send(self.out) :]
        return not self.out

    def status(self) -> int:
        """Of the answer, once all of it has come; 0 before."""
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionError("the collector hung up")
        self.answer += part
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if not end:
            return 0
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) < length:
            return 0
        self.answer = b""
        return int(head[9:12])


def replay(url: str, requests: Iterator[bytes], seconds: float, connections: int) -> Replay:
    """Each connection sends its next request when its last has been answered."""
    parts = urllib.parse.urlsplit(url)
    address = (parts.hostname or "", parts.port or 0)
    latencies: list[float] = []
    refused = 0
    cpu, started = time.process_time(), time.monotonic()
    with selectors.DefaultSelector() as selector:

        def start(connection: _Connection) -> None:
            request = next(requests, None) if time.monotonic() < started + seconds else None
            if request is None:
                selector.unregister(connection.socket)
                connection.socket.close()
                return
            connection.out, connection.sent_at = memoryview(request), time.monotonic()
            if not connection.send():
                selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

        for _ in range(connections):
            connection = _Connection(address)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            start(connection)
        while selector.get_map():
            for key, ready in selector.select(5):
                connection = key.data
                if ready & selectors.EVENT_WRITE and connection.send():
                    selector.modify(connection.socket, selectors.EVENT_READ, connection)
                if ready & selectors.EVENT_READ and (status := connection.status()):
                    if status == 200:
                        latencies.append(time.monotonic() - connection.sent_at)
                    else:
                        refused += 1
                    start(connection)
    return Replay(len(latencies), refused, time.monotonic() - started, sorted(latencies), time.process_time() - cpu)
