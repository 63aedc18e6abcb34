"""docs/guides/profile.md does what it says: its commands run, its queries answer, its tables name what there is."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sealift.observe.autostart_settings import _READERS
from sealift.observe.sinks import parse_sink
from sealift.observe.sinks.json_lines import read_json_lines
from sealift.observe.sinks.spec import FORMS
from sealift.observe.snapshot import Snapshot, merged
from tests.cli.test_profile import ENVIRON, counts

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/profile.md").read_text()
BLOCKS: dict[str, list[str]] = {}
for found in re.finditer(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", GUIDE, re.S):
    BLOCKS.setdefault(found[1], []).append(found[2])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with examples/ in it, where the guide's commands run one after the other."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def run(name: str, place: Path) -> list[subprocess.CompletedProcess[str]]:
    """The commands of a block as a shell would run them, with this Python."""
    done = []
    for line in BLOCKS[name][0].strip().splitlines():
        words, environ = shlex.split(line), dict(ENVIRON)
        while "=" in words[0]:
            variable, _, value = words.pop(0).partition("=")
            environ[variable] = value
        words = [sys.executable if w == "python" else w for w in words]
        if words[0] == "sealift":
            words = [sys.executable, "-m", *words]
        one = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=place, env=environ)
        assert one.returncode == 0, f"{line}\n{one.stderr}"
        done.append(one)
    return done


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"training", "out", "model", "variable", "service", "duckdb"}


@pytest.mark.usefixtures("bridge")
def test_a_training_loop(place: Path) -> None:
    (done,) = run("training", place)
    assert done.stdout.startswith("loss ")
    row = next(line for line in done.stderr.splitlines() if line.startswith("aten::addmm "))
    assert row.split()[1] == "400"
    assert "an operator's total holds the operators it calls" in done.stderr


@pytest.mark.usefixtures("bridge")
def test_the_files_it_keeps(place: Path) -> None:
    run("out", place)
    assert {p.name for p in (place / "run").iterdir()} == {"summary.json", "profile.jsonl", "flame.html", "trace.json"}
    assert all(f"`run/{p.name}`" in GUIDE for p in (place / "run").iterdir())
    assert "aten::addmm" in counts(Snapshot.from_dict(json.loads((place / "run/summary.json").read_text())))


@pytest.mark.usefixtures("bridge")
def test_the_variable(place: Path) -> None:
    (done,) = run("variable", place)
    assert (done.stdout.startswith("loss "), done.stderr) == (True, "")
    assert list((place / "observed").glob("*.jsonl"))


def test_a_model_then_a_service(place: Path) -> None:
    _, done = run("model", place)
    assert re.search(r"^k0_linear_relu .* aten.linear.default, aten.relu.default @ ", done.stdout, re.M)
    for old in (place / "observed").glob("*"):
        old.unlink()
    (done,) = run("service", place)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("busiest: k")
    found = re.findall(r"k0_linear_relu of \w+:1 for (\w+): (\d+) ± (\d+) calls, p99 [\d.]+ us", done.stdout)
    assert {tenant for tenant, _, _ in found} == {"acme", "other"}, done.stdout
    for tenant, calls, error in found:
        assert abs(int(calls) - (1500 if tenant == "acme" else 500)) <= 3 * int(error)
    total = merged(s for path in (place / "observed").glob("*.jsonl") for s in read_json_lines(path))
    assert total is not None and total.process.pid != os.getpid()


def test_the_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    from tests.observe.sinks.samples import series

    durations = [1000] * 990 + [50_000] * 10
    sink = parse_sink(f"parquet:{tmp_path / 'profiles'}")[1]()
    sink.write(Snapshot(0, 1, (series("aten::addmm", durations), series("aten::add", [10]))))
    sink.write(Snapshot(1, 2, (series("aten::addmm", [50_000] * 5),)))
    monkeypatch.chdir(tmp_path)
    by_time, p99 = BLOCKS["duckdb"]
    assert duckdb.sql(by_time).fetchall()[0] == ("aten::addmm", 1005, pytest.approx((990 * 1000 + 15 * 50_000) / 1e9))
    assert duckdb.sql(p99).fetchall()[0][0] == pytest.approx(50, rel=0.05)


def test_the_tables_name_what_there_is() -> None:
    for form in FORMS:
        kind = form.partition(":")[0].partition("[")[0]
        assert re.search(rf"^\| `{kind}", GUIDE, re.M), kind
    for setting in _READERS:
        assert f"`{setting}=`" in GUIDE, setting
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", GUIDE):
        assert (ROOT / "docs/guides" / target).exists(), target
