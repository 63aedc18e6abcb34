"""The embedded store: each point counted once at any stage of folding, and after any crash."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sealift.fleet.errors import StoreBusyError, StoreDamagedError, StoreFullError
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter, Retention, Selection
from tests.fleet.conftest import START_S, Fleet, fill, simulated

KEEP = Retention(None, None, None, None)
ALL = Selection(0, START_S + 10**6, ("operator", "model", "host"))


def sums(store: EmbeddedStore, selection: Selection = ALL) -> Any:
    totals = {tuple(r[k] for k in (*selection.by, *(("time",) if selection.step_s else ()))): r for r in store.totals(selection).to_pylist()}
    return {k: (r["count"], r["samples"], r["total_ns"], r["self_ns"]) for k, r in totals.items()}


def counts(store: EmbeddedStore, selection: Selection) -> Any:
    return sorted(tuple(r.values()) for r in store.buckets(selection).to_pylist())


def test_folding_changes_no_answer(store: EmbeddedStore, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    selections = [
        ALL,
        Selection(0, START_S + 10**6, ("operator",)),
        Selection(START_S + 70, START_S + 290, ("model",)),
        Selection(START_S, START_S + 360, ("host",), (Filter.parse("operator~aten::*"), Filter.parse("host!~embedder*")), 60),
        Selection(START_S + 10, START_S + 20, ("operator",), (Filter.parse("service=vision-api"),), 10),
    ]
    before = [(sums(store, s), counts(store, s)) for s in selections]
    assert all(s for s, _ in before)
    done = store.maintain(START_S * 10**9)  # minutes that are not over stay as they are
    assert done["folds"] >= 1 and store.info().figures["store_rows_0s"] == 0 and store.info().figures["store_rows_60s"] == 0
    assert [(sums(store, s), counts(store, s)) for s in selections] == before
    store.maintain((START_S + 10_000) * 10**9)
    assert store.info().figures["store_rows_3600s"] > 0
    assert [(sums(store, s), counts(store, s)) for s in selections] == before


def test_repetitions_are_not_counted_and_parts_are(store: EmbeddedStore, fleet: Fleet) -> None:
    batches = fleet.batches()
    fill(store, batches)
    before = sums(store)
    receipt = store.commit(batches[-40:], START_S * 10**9)
    assert (receipt.counted, receipt.repeated) == (0, 40) and sums(store) == before
    twice = store.commit([replace(batches[0], sequence=10**6)] * 2, START_S * 10**9)
    assert (twice.counted, twice.repeated) == (1, 1)
    part = replace(batches[-1], digest=batches[-1].digest ^ 1)  # the other half of what a relay cut in two
    assert store.commit([part], START_S * 10**9).counted == 1


def test_late_points_count_at_every_step(store: EmbeddedStore, fleet: Fleet) -> None:
    batches = fleet.batches()
    late = batches[40:50]
    fill(store, batches[:40] + batches[50:])
    store.maintain((START_S + 10_000) * 10**9)
    fill(store, late)
    complete = sums(store)
    store.maintain((START_S + 20_000) * 10**9)
    assert sums(store) == complete
    tallies = fleet.truth.by("operator", "model", "host")
    assert {k: v[0] for k, v in complete.items()} == {k: t.count for k, t in tallies.items() if t.count}


def test_compaction_and_retention(tmp_path: Path) -> None:
    fleet = simulated(hosts=3, minutes=40, calls=4)
    store = EmbeddedStore(tmp_path, Retention(3600, 7200, None, None), threads=1)
    batches = fleet.batches()
    fill(store, batches[:40])
    compactions = 0
    for i in range(40, len(batches), 40):  # one fold for each commit leaves many small segments
        fill(store, batches[i : i + 40])
        compactions += store.maintain(START_S * 10**9).get("compactions", 0)
    before = sums(store)
    store.maintain((START_S + 4000) * 10**9)
    assert compactions > 0
    assert sum(1 for s in store._segments.values() if s.step_s == 10 and s.scope == "process") < 12
    assert sums(store) == before
    done = store.maintain((START_S + 20_000) * 10**9)
    assert done["dropped"] > 0 and store.info().figures["store_rows_10s"] == 0
    assert sums(store) == before  # hours remain
    edge = Selection(START_S + 100, START_S + 200, ("operator",))
    assert sums(store, edge) == sums(store, Selection(START_S // 3600 * 3600, START_S // 3600 * 3600 + 3600, ("operator",)))
    on_disk = {p.name for p in (tmp_path / "segments").iterdir()}
    assert on_disk == set(store._segments)
    store.close()


def test_after_a_crash_nothing_half_done_is_left(tmp_path: Path, fleet: Fleet) -> None:
    store = EmbeddedStore(tmp_path, KEEP, threads=1)
    fill(store, fleet.batches())
    before = sums(store)
    store.close()
    (tmp_path / "segments" / ".process-0-0000.parquet.part").write_bytes(b"PAR1")
    (tmp_path / "segments" / "process-0-ffff.parquet").write_bytes(b"written, but no transaction named it")
    store = EmbeddedStore(tmp_path, KEEP, threads=1)
    assert sums(store) == before and {p.name for p in (tmp_path / "segments").iterdir()} == set(store._segments)
    assert store.commit(fleet.batches()[-5:], START_S * 10**9).repeated == 5
    store.close()


@pytest.mark.parametrize("damage", ["truncated", "gone", "footer"])
def test_a_damaged_segment_is_set_aside(tmp_path: Path, fleet: Fleet, damage: str) -> None:
    store = EmbeddedStore(tmp_path, KEEP, threads=1)
    fill(store, fleet.batches(), group=200)
    names = sorted(store._segments)
    rows = store._segments[names[0]].rows
    total = sum(s.rows for s in store._segments.values())
    store.close()
    path = tmp_path / "segments" / names[0]
    if damage == "gone":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        if damage == "truncated":
            del data[len(data) // 2 :]
        else:
            data[-12:-4] = b"\xff" * 8
        path.write_bytes(data)
    store = EmbeddedStore(tmp_path, KEEP, threads=1)
    assert store.damaged == 1 and store.info().figures["store_damaged_segments"] == 1
    assert sum(s.rows for s in store._segments.values()) == total - rows
    assert sums(store)
    store.maintain((START_S + 10_000) * 10**9)
    assert (tmp_path / "damaged" / names[0]).exists() == (damage != "gone")
    store.close()


def test_two_collectors_cannot_own_one_store(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, KEEP)
    with pytest.raises(StoreBusyError, match=rf"belongs to process {os.getpid()}") as error:
        EmbeddedStore(tmp_path, KEEP)
    assert error.value.code == "E-FLEET-001"
    store.close()
    EmbeddedStore(tmp_path, KEEP).close()


def test_a_control_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "control.sqlite").write_bytes(b"not a database at all, but long enough to look like one" * 50)
    with pytest.raises(StoreDamagedError) as error:
        EmbeddedStore(tmp_path, KEEP)
    assert error.value.code == "E-FLEET-002"
    (tmp_path / "control.sqlite").unlink()
    EmbeddedStore(tmp_path, KEEP).close()
    with sqlite3.connect(tmp_path / "control.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    connection.close()
    with pytest.raises(StoreDamagedError, match="version 99"):
        EmbeddedStore(tmp_path, KEEP)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from sealift.fleet.errors import StoreFullError
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention
from tests.fleet.conftest import START_S, simulated
from tests.fleet.test_embedded import sums
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
batches = simulated().batches()
store = EmbeddedStore(Path(sys.argv[1]), Retention(None, None, None, None), threads=1)
store.commit(batches[:100], START_S * 10**9)
before = sums(store)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        store.commit(batches[100:300], START_S * 10**9)
        print("committed")
    except StoreFullError as error:
        print(error.code)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert sums(store) == before
receipt = store.commit(batches[100:300], START_S * 10**9)
print(receipt.counted, sum(1 for p in (Path(sys.argv[1]) / "segments").iterdir()) == len(store._segments))
"""


def test_full_disk(tmp_path: Path) -> None:
    """With files limited to 4 kB a commit fails whole, is counted nowhere, and succeeds once there is room."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=600
    )
    assert done.stdout.split() == ["E-FLEET-006"] * 3 + ["200", "True"], done.stdout + done.stderr


def test_the_reserve_is_not_given_to_batches(tmp_path: Path, fleet: Fleet) -> None:
    store = EmbeddedStore(tmp_path, KEEP, reserve_bytes=1 << 60)
    with pytest.raises(StoreFullError):
        store.commit(fleet.batches()[:1], START_S * 10**9)
    store.close()


def test_more_series_than_allowed_overflow_into_one(tmp_path: Path, fleet: Fleet) -> None:
    store = EmbeddedStore(tmp_path, KEEP, threads=1, max_series=10)
    fill(store, fleet.batches())
    found = sums(store, Selection(0, START_S + 10**6, ("operator",)))
    assert ("(overflow)",) in found and len(store._series) <= 11
    assert sum(v[0] for v in found.values()) == sum(t.count for t in fleet.truth.by().values())
    store.close()


def test_sql_reads_the_segments_and_nothing_else(store: EmbeddedStore, fleet: Fleet, tmp_path: Path) -> None:
    from sealift.fleet.errors import QuestionError

    fill(store, fleet.batches())
    store.maintain((START_S + 10_000) * 10**9)
    total = sum(t.total_ns for t in fleet.truth.by().values())
    for view in ("points", "minutes", "hours"):
        assert store.sql(f"SELECT sum(total_ns)::BIGINT AS n FROM {view}", 10, 10).to_pylist() == [{"n": total}]
    joined = store.sql("SELECT host, count(*) n FROM points p JOIN resource r ON r.id = p.resource GROUP BY ALL; ", 5, 10)
    assert joined.num_rows == 5
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for text in (
        f"SELECT * FROM read_csv('{secret}')", f"SELECT * FROM '{secret}'", "COPY (SELECT 1) TO '/tmp/x.csv'", "ATTACH '/tmp/x.db'", "INSTALL httpfs",
        "SET enable_external_access = true", "SELECT 1; SELECT 2", "DROP TABLE series", "PRAGMA database_list", "SELECT getenv('HOME')", "SELEC 1", "",
        f"SELECT * FROM read_text('{tmp_path}/store/control.sqlite')", "SELECT * FROM glob('/*')",
    ):  # fmt: skip
        with pytest.raises(QuestionError):
            store.sql(text, 10, 10)
    with pytest.raises(QuestionError, match=r"within 0\.3 s"):
        store.sql("SELECT count(*) FROM range(1000000000) a, range(100000) b", 10, 0.3)


def test_segments_are_plain_parquet(store: EmbeddedStore, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    path = next((store.folder / "segments").iterdir())
    assert {"time_s", "series", "resource", "count", "first", "counts"} <= set(pq.read_schema(path).names)


KILLED = """
import sys
from pathlib import Path
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention
from tests.fleet.conftest import START_S, simulated
batches = simulated().batches()
store = EmbeddedStore(Path(sys.argv[1]), Retention(None, None, None, None), threads=1)
print("ready", flush=True)
for i in range(len(batches)):
    store.commit(batches[i : i + 1], START_S * 10**9)
    print(i, flush=True)
    if i % 7 == 0:
        store.maintain((START_S + 10_000) * 10**9)
"""


def test_killed_between_any_two_instructions(tmp_path: Path, fleet: Fleet) -> None:
    """kill -9 while it commits and folds: what it said was durable is there, once, and nothing but that and the commit under way."""
    chance = random.Random(5)
    batches = fleet.batches()
    for round in range(2):
        folder = tmp_path / str(round)
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        wanted, said = chance.randrange(5, 40), -1
        for line in process.stdout:
            if line.strip().isdecimal():
                said = int(line)
                if said >= wanted:
                    break
        process.send_signal(signal.SIGKILL)
        said = max([said, *(int(line) for line in process.stdout if line.strip().isdecimal() and line.endswith("\n"))])
        process.wait()
        store = EmbeddedStore(folder, KEEP, threads=1)
        again = store.commit(batches[: said + 1], START_S * 10**9)
        assert (again.counted, again.repeated) == (0, said + 1)
        fill(store, batches)
        whole = {k: t.count for k, t in fleet.truth.by("operator", "model", "host").items() if t.count}
        assert {k: v[0] for k, v in sums(store).items()} == whole
        store.close()


def test_a_question_that_takes_too_long_is_ended(tmp_path: Path, fleet: Fleet) -> None:
    from sealift.fleet.errors import QuestionError

    store = EmbeddedStore(tmp_path, KEEP, threads=1, query_seconds=0.0001)
    fill(store, fleet.batches(), 300)
    with pytest.raises(QuestionError, match="no answer within"):
        for _ in range(200):
            store.buckets(ALL)
    store.close()


def test_questions_read_the_roll_up_that_is_just_fine_enough(store: EmbeddedStore, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    store.maintain((START_S + 10_000) * 10**9)

    def read(*by: str, where: tuple[Filter, ...] = ()) -> set[str]:
        parts = store._parts(Selection(fleet.plan.start_s, fleet.end_s, by, where), store._duck)
        return {scope for part in parts for scope in ("process", "fleet", "host") if f"/{scope}-" in part.source}

    assert read("operator", "service") == read() == {"fleet"}
    assert read("host") == read("service", where=(Filter.parse("host~search*"),)) == {"host"}
    assert read("host", "model") == read("host", where=(Filter.parse("operator=aten::addmm"),)) == read("label:phase", "pid") == {"process"}
    rows = {scope: sum(s.rows for s in store._chosen(scope, 60)) for scope in ("process", "host")}
    assert 0 < rows["host"] * 4 < rows["process"]
