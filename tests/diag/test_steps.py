"""Steps: names, times, verification, dumps, skip and stop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from sealift.diag.errors import CompileError, InternalError, joined
from sealift.diag.loc import Loc, Place
from sealift.diag.steps import Steps, StopAfter


@dataclass(frozen=True)
class Options:
    dump_dir: Path | None = None
    skip: frozenset[str] = frozenset()
    stop_after: str | None = None


def test_steps_run_in_order_and_are_timed() -> None:
    s = Steps(Options())
    assert s("double", lambda x, k: x * k, 4, 2) == 8
    assert s("same", lambda x: x, "unchanged") == "unchanged"
    assert [n for n, ms in s.times if ms >= 0] == ["double", "same"]
    assert s.table().splitlines()[-1].startswith("total")


def test_a_failing_verification_names_the_step() -> None:
    def verify(text: str) -> None:
        if "!" in text:
            raise InternalError("invariant 1")

    s = Steps(Options(), verify={str: verify})
    s("good", str.upper, "a")
    with pytest.raises(InternalError, match=r"after step bad: .*invariant 1"):
        s("bad", lambda x: x + "!", "a")


def test_only_what_changed_is_dumped(tmp_path: Path) -> None:
    s = Steps(Options(dump_dir=tmp_path / "out"), dumps={str: ("txt", str)})
    s("one", str.upper, "a")
    s("same", lambda x: x, "A")
    s("equal", lambda x: "".join([x]), "A")
    s("two", lambda x: x + "b", "A")
    assert sorted((p.name, p.read_text()) for p in (tmp_path / "out").iterdir()) == [("01_one.txt", "A"), ("04_two.txt", "Ab")]


def test_skip_and_stop_after() -> None:
    s = Steps(Options(skip=frozenset({"fuse"}), stop_after="plan"))
    assert s("fuse", str.upper, "a") == "a"
    with pytest.raises(StopAfter) as stopped:
        s("plan", str.upper, "a")
    assert stopped.value.value == "A"


def test_an_unknown_step_is_an_error() -> None:
    s = Steps(Options(skip=frozenset({"fusee"})))
    s("fuse", str.upper, "a")
    with pytest.raises(ValueError, match=r"no step called fusee; steps: fuse"):
        s.check_names()


def test_joined_errors_say_everything() -> None:
    a = CompileError("no lowering for x", code="E-OP-001", loc=Loc((Place("m.py", 3, "layer", "x()"),)), node="%a = x()", help="write it")
    b = CompileError("complex64 is not supported", code="E-DTYPE-001")
    both = joined([a, b])
    assert both.code == "E-OP-001"
    assert str(both).splitlines() == [
        "[E-OP-001] no lowering for x",
        "  node: %a = x()",
        "  at:   m.py:3 (in layer): x()",
        "  help: write it",
        "[E-DTYPE-001] complex64 is not supported",
    ]
