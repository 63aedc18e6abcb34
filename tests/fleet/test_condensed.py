"""Ranges added up for several questions: the same answers, never stale, bounded."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sealift.fleet import questions
from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question
from sealift.fleet.store import embedded
from sealift.fleet.store.condensed import Condensed, Range
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter, Selection
from tests.fleet.conftest import START_S, Fleet, fill

WHERE = (Filter.parse("operator=aten::addmm"),)
SELECTIONS = [
    Selection(START_S, START_S + 3600, ("operator",)),
    Selection(START_S + 70, START_S + 290, ("model", "service")),
    Selection(START_S, START_S + 3600, ()),
    Selection(START_S, START_S + 3600, ("host",)),
    Selection(START_S, START_S + 3600, ("host",), WHERE),
    Selection(START_S, START_S + 3600, ("host", "model"), (*WHERE, Filter.parse("host~*0*"))),
    Selection(START_S + 10, START_S + 200, ("instance",), WHERE, among=(("service", ("search-ranker", "embedder", "vision-api", "trainer")),)),
    Selection(START_S, START_S + 3600, ("operator",), (Filter.parse("operator=none-such"),)),
]


def answers(store: EmbeddedStore, selection: Selection) -> Any:
    """Both, in this order: the first adds the range up, the second finds it."""
    totals = {tuple(r[k] for k in selection.by): r for r in store.totals(replace(selection, quantiles=True)).to_pylist()}
    return totals, sorted(tuple(r.values()) for r in store.buckets(selection).to_pylist())


def same(one: Any, other: Any) -> None:
    assert one[1] == other[1] and one[0].keys() == other[0].keys()
    for key, row in one[0].items():
        for name, value in row.items():
            assert value == other[0][key][name] or math.isclose(value, other[0][key][name], rel_tol=1e-12), (key, name)


def test_the_same_answers_as_from_the_rows(store: EmbeddedStore, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, fleet.batches())
    for now in (0, START_S, START_S + 10_000):  # arrived, folded in part, folded
        store.maintain(now * 10**9)
        found = [answers(store, s) for s in SELECTIONS]
        again = [answers(store, s) for s in SELECTIONS]
        with monkeypatch.context() as patched:
            patched.setattr(EmbeddedStore, "_condensing", lambda *_: ("", None))
            plain = [answers(store, s) for s in SELECTIONS]
        for a, b, c in zip(found, again, plain):
            same(a, c)
            same(b, c)
        assert [bool(p[1]) for p in plain] == [True] * (len(SELECTIONS) - 1) + [False]


def test_one_reading_answers_several_questions(store: EmbeddedStore, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, fleet.batches())
    store.maintain((START_S + 10_000) * 10**9)
    read = list[Range]()
    keep = Condensed.keep

    def counted(self: Condensed, wanted: Range, batches: Any) -> Any:
        read.append(wanted)
        return keep(self, wanted, batches)

    monkeypatch.setattr(Condensed, "keep", counted)
    asked = Question(START_S, START_S + 3600)
    for by in (("operator",), ("model",), ("service", "version"), ()):
        questions.top(store, replace(asked, by=by))
    assert len(read) == len(set(read)) == 1
    for by in (("host",), ("instance",)):
        questions.top(store, replace(asked, by=by, where=WHERE))
    assert len(read) == len(set(read)) == 2


def test_what_arrives_later_is_in_the_next_answer(store: EmbeddedStore, fleet: Fleet) -> None:
    batches = list(fleet.batches())
    everything = Selection(START_S, START_S + 3600, ())
    seen = 0
    for part in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
        store.commit(part, START_S * 10**9)
        (row,) = answers(store, everything)[0].values()
        assert row["count"] > seen
        seen = row["count"]
    store.maintain((START_S + 10_000) * 10**9)
    assert next(iter(answers(store, everything)[0].values()))["count"] == seen
    assert seen == sum(t.count for t in fleet.truth.by("operator").values())


def test_threads_that_ask_at_once(store: EmbeddedStore, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    store.maintain((START_S + 10_000) * 10**9)
    expected = [answers(store, s) for s in SELECTIONS]
    store._condensed = Condensed(1 << 20)
    with ThreadPoolExecutor(4) as pool:
        for i, found in enumerate(pool.map(lambda i: answers(store, SELECTIONS[i % len(SELECTIONS)]), range(64))):
            same(found, expected[i % len(SELECTIONS)])


def test_it_is_bounded(store: EmbeddedStore, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    store.maintain((START_S + 10_000) * 10**9)
    store._condensed = held = Condensed(60_000)
    for start in range(START_S, START_S + 300, 10):
        answers(store, Selection(start, START_S + 360, ("operator",)))
        assert held._bytes == sum(t.nbytes for t in held._held.values() if t is not None) <= 60_000
    assert held._held


@pytest.mark.parametrize("kind", [embedded.duckdb.InterruptException, OSError])  # of a whole answer, and of a stream
def test_a_reading_that_takes_too_long_is_ended(kind: Any, tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore(tmp_path, threads=1)
    fill(store, fleet.batches())

    def interrupted(*_: Any) -> pa.Table | None:
        raise kind("INTERRUPT Error: Interrupted!")

    monkeypatch.setattr(Condensed, "keep", interrupted)
    with pytest.raises(QuestionError, match="no answer within"):
        store.buckets(SELECTIONS[0])
    store.close()
