"""Every code of the fleet's is raised by a test: 001, 002 and 006 in test_embedded.py, 003 and 004 in test_collector.py, 005 in test_decode.py,
007 in test_rules.py, 008 in test_cli.py, 009 in test_guard.py. Here: each type has the code of its page."""

from __future__ import annotations

from pathlib import Path

from sealift.fleet import errors

PAGES = Path(__file__).resolve().parents[2] / "docs/errors"


def test_each_code_has_one_type_and_a_page() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.FleetError) and k is not errors.FleetError]
    codes = [kind.code for kind in kinds]
    assert sorted(codes) == [f"E-FLEET-{i:03d}" for i in range(1, 10)]
    for kind in kinds:
        error = kind("what; help: how")
        assert str(error) == f"[{kind.code}] what; help: how" and error.code == kind.code
        assert (PAGES / f"{kind.code}.md").read_text().startswith(f"# {kind.code}: ")
