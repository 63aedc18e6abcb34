"""The agent: what a process sees reaches the collector once, whatever happens to either of them; the process feels nothing."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sealift.fleet.agent import FleetSink, Orders
from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question, lineage, top
from sealift.fleet.spool import Spool
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter
from sealift.observe.snapshot import Histogram, ModelEvent, Process, Sampling, Series, Snapshot
from tests.fleet.conftest import START_S

Serving = Callable[..., str]


def delta(i: int, start_id: str = "p1") -> Snapshot:
    """Window i of a process: 10 calls of one operator, recorded one in two."""
    histogram = Histogram.of([1000 * (i + 1)] * 5, weight=2)
    series = Series(
        "aten::mm", model_id="m", labels=(("phase", "train"),), count=10, samples=5, total_ns=10_000 * (i + 1), self_ns=9000, histogram=histogram
    )
    begin = (START_S + 10 * i) * 10**9
    return Snapshot(
        begin, begin + 10 * 10**9, (series,), dropped=1, sampling=Sampling(overhead=0.002), process=Process(pid=42, host="h1", start_id=start_id),
        api_usage={"torch.load": begin} if i == 0 else {},
        model_events=(ModelEvent("loaded", begin, model_id="m", digest="sha256:9", path="m.pt2"),) if i == 0 else (),
    )  # fmt: skip


def sink(url: str, folder: Path, **options: Any) -> FleetSink:
    return FleetSink(url, spool=folder, timeout_s=2.0, attributes={"service.name": "trainer"}, **options)


def wait_for(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    """The machine may be busy, or stop this program for a while."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kept(store: EmbeddedStore) -> dict[str, Any]:
    (row,) = top(store, Question(START_S, START_S + 1000, ("operator", "model", "host", "service", "label:phase"))).to_pylist()
    return dict(row)


def test_a_snapshot_s_numbers_arrive(store: EmbeddedStore, serving: Serving, tmp_path: Path) -> None:
    agent = sink(serving(store), tmp_path / "spool")
    for i in range(5):
        agent.write(delta(i))
    wait_for(lambda: agent.delivered == 6)
    agent.close()
    row = kept(store)
    assert (row["operator"], row["model"], row["host"], row["service"], row["label:phase"]) == ("aten::mm", "m", "h1", "trainer", "train")
    assert (row["count"], row["samples"], row["total_ns"], row["self_ns"]) == (50, 25, 10_000 * 15, 45_000)
    assert store.processes().column("dropped").to_pylist() == [5]
    (file,) = lineage(store, (Filter.parse("model=m"),)).to_pylist()
    assert file["digest"] == "sha256:9" and file["loaded_by"] == "trainer" and file["concern"] == "unsigned, unknown origin"
    assert not (tmp_path / "spool" / "p1").exists()


def test_while_the_collector_is_away_the_spool_waits_and_a_later_process_delivers(store: EmbeddedStore, serving: Serving, tmp_path: Path) -> None:
    port = free_port()
    agent = sink(f"http://127.0.0.1:{port}", tmp_path / "spool")
    for i in range(10):
        agent.write(delta(i))
    wait_for(lambda: agent.failures > 0)
    agent.close(0.3)
    assert agent.delivered == 0 and len(list((tmp_path / "spool" / "p1").glob("*.metrics"))) == 10
    later = sink(serving(store), tmp_path / "spool")
    later.write(delta(10, "p2"))
    wait_for(lambda: later.delivered == 12)
    later.close()
    assert kept(store)["count"] == 110 and kept(store)["total_ns"] == 10_000 * 66
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_collector_comes_back(store: EmbeddedStore, serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sealift.fleet.collector.serve import Address

    monkeypatch.setattr("sealift.fleet.agent._FAR_APART_S", 0.2)
    port = free_port()
    agent = sink(f"http://127.0.0.1:{port}", tmp_path / "spool")
    agent.write(delta(0))
    wait_for(lambda: agent.failures > 0)
    serving(store, Address(port=port))
    agent.write(delta(1))
    wait_for(lambda: agent.delivered == 3)
    agent.close()
    assert kept(store)["count"] == 20


class Odd(http.server.BaseHTTPRequestHandler):
    """A collector that answers `script`'s statuses in turn; 0: it takes the request and hangs up without an answer."""

    script: list[int]
    taken: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.script.pop(0) if self.script else 200
        self.taken.append(body)
        if status:
            self.send_response(status)
            self.send_header("Sealift-Control", '{"duty": 0.25, "probability": 0.5}' if status == 200 else "{")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[tuple[str, type[Odd]]]:
    kind = type("OneOdd", (Odd,), {"script": [], "taken": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_was_acknowledged_but_not_heard_is_sent_again_and_counted_once(
    store: EmbeddedStore, odd: tuple[str, type[Odd]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    from sealift.fleet.otlp.decode import Decoder

    monkeypatch.setattr("sealift.fleet.agent._FAR_APART_S", 0.05)
    url, kind = odd
    kind.script += [0, 503, 429, 401, 200]
    orders: list[Orders] = []
    agent = sink(url, tmp_path / "spool", on_orders=orders.append)
    agent.write(delta(1))
    wait_for(lambda: agent.delivered == 1)
    agent.close()
    assert len(kind.taken) == 5 and orders[-1] == Orders(0.25, 0.5)
    for body in kind.taken:  # as if every answer but the last had been lost
        store.commit(Decoder().metrics(gzip.decompress(body), START_S * 10**9 + 10**12).batches, START_S * 10**9)
    assert kept(store)["count"] == 10


def test_a_batch_that_is_refused_for_good_does_not_block_the_rest(odd: tuple[str, type[Odd]], tmp_path: Path) -> None:
    url, kind = odd
    kind.script += [400]
    agent = sink(url, tmp_path / "spool")
    agent.write(delta(1))
    wait_for(lambda: agent.refused == 1)
    agent.write(delta(2))
    wait_for(lambda: agent.delivered == 1)
    agent.close()


def test_a_collector_that_hangs_costs_the_program_nothing(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        patient = FleetSink(url, spool=tmp_path / "patient", timeout_s=86_400.0)
        patient.write(delta(0))
        held, _ = listener.accept()  # from here on it waits for an answer, for a day
        for i in range(1, 20):
            patient.write(delta(i))  # and this waits for nobody
        agent = FleetSink(url, spool=tmp_path / "spool", timeout_s=0.3)
        agent.write(delta(0))
        wait_for(lambda: agent.failures > 0)
        agent.close(0.5)  # nor does this
        held.close()
    assert agent.delivered == patient.delivered == 0


def test_traces_are_recorded_when_asked_for(store: EmbeddedStore, serving: Serving, tmp_path: Path) -> None:
    from sealift.fleet import connect

    url = serving(store)
    agent = sink(url, tmp_path / "spool", record_trace=lambda seconds: b'{"traceEvents": [], "seconds": %d}' % int(seconds))
    agent.write(delta(0))
    wait_for(lambda: agent.delivered == 2)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(connect(url).trace("p1", 2, patience_s=600)))
    thread.start()
    for i in range(1, 6000):
        agent.write(delta(i))
        thread.join(0.1)
        if found:
            break
    thread.join(600)
    agent.close()
    assert found == [b'{"traceEvents": [], "seconds": 2}']


def test_the_spool_is_bounded_and_drops_the_oldest(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "me", limit_bytes=1000)
    for i in range(12):
        spool.put("metrics", bytes([i]) * 100)
    left = [e.path.read_bytes()[0] for e in spool.waiting()]
    assert left == list(range(2, 12)) and spool.dropped == 2
    assert spool.put("metrics", bytes(2000)) is None and spool.dropped == 3
    other = Spool(tmp_path, "other")
    assert list(other.orphans()) == []  # its owner lives
    spool.close()
    ((*left,),) = other.orphans()
    assert [e.path.read_bytes()[0] for e in left] == list(range(2, 12))
    other.close()


def test_an_endpoint_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    for endpoint in ("", "collector:4318", "ftp://x"):
        with pytest.raises(QuestionError, match="endpoint"):
            FleetSink(endpoint, spool=tmp_path)
