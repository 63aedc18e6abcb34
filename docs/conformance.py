"""Runs every operator test (`make conformance`) and writes docs/conformance.md: what ran, where, and what came of it.

    python docs/conformance.py [JOBS]

In parts, whose results are kept in build/conformance: it goes on where it was stopped, and begins anew once a source has changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import numpy
import torch

from sealift.ops import OPS

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs/conformance.md", ROOT / "build/conformance"
PARTS = 20
SOURCES = ("sealift/ops", "sealift/ir", "sealift/passes", "sealift/plan", "sealift/backends", "sealift/build", "kernels", "tests/ops")
WHAT = {  # a test, and what it holds every row to
    "test_matches_eager": "interpreted, on OpInfo's and our own calls, over ten dtypes",
    "test_matches_eager_on_hostile_inputs": "interpreted, on NaN, infinities, -0.0, empty, 0-d, strided and size-1 inputs",
    "test_compiled_matches_eager": "both once more, fused and compiled",
    "test_symbolic_sizes": "lowered with a symbol for a size, interpreted at 0, 1, 7 and the call's own size",
    "test_symbolic_sizes_compiled": "the same, compiled",
}


def main(jobs: str) -> int:
    directory = RESULTS / _digest()
    directory.mkdir(parents=True, exist_ok=True)
    command = ["-m", "pytest", "-q", "-n", jobs, "tests/ops"]
    failed = 0
    for part in range(1, PARTS + 1):
        results = directory / f"{part}.xml"
        if not results.exists():
            unfinished = results.with_suffix(".part")
            environment = {**os.environ, "SEALIFT_ALL_ROWS": f"{part}/{PARTS}"}
            done = subprocess.run([sys.executable, *command, f"--junitxml={unfinished}"], cwd=ROOT, env=environment)
            failed = done.returncode or failed
            unfinished.replace(results)
        write_page(directory, f"SEALIFT_ALL_ROWS=N/{PARTS} python {' '.join(command)}")
    return failed


def write_page(directory: Path, command: str) -> None:
    files = [directory / f"{part}.xml" for part in range(1, PARTS + 1) if (directory / f"{part}.xml").exists()]
    suites = [suite for file in files for suite in ElementTree.parse(file).getroot().iter("testsuite")]
    PAGE.write_text(page(suites, len(files), command))


def _digest() -> str:
    """Of the sources that decide the outcome."""
    digest = hashlib.sha256()
    for path in sorted(p for source in SOURCES for p in (ROOT / source).rglob("*") if p.suffix in (".py", ".h", ".cpp")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def page(suites: Sequence[ElementTree.Element], parts: int, command: str) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    notes: list[str] = []
    for case in (c for suite in suites for c in suite.iter("testcase")):
        outcome = "passed"
        for kind, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            found = case.find(kind)
            if found is not None:
                outcome = name
                notes.append(f"- {name}: `{case.get('name')}`: {(found.get('message') or '').splitlines()[0][:200]}")
        counts[(case.get("name") or "").partition("[")[0]][outcome] += 1
    rows = [f"| {name} | {what} | {_three(counts.pop(name, Counter()))} |" for name, what in WHAT.items()]
    rest = sum(counts.values(), Counter[str]())
    total = {key: sum(float(suite.get(key) or 0) for suite in suites) for key in ("tests", "failures", "errors", "skipped", "time")}
    passed = total["tests"] - total["failures"] - total["errors"] - total["skipped"]
    tried = sum(position % PARTS < parts for position, name in enumerate(OPS) if name.startswith("aten."))
    whole = "" if parts == PARTS else f" **Only {parts} of {PARTS} parts were run: {tried} rows.**"
    return "\n".join(
        [
            "# Conformance of the operators",
            "",
            "Written by `make conformance`. Each row of the operator table against eager PyTorch; where a row deviates on purpose,",
            "tests/ops/own_samples.py says why (`DEVIATIONS`).",
            "",
            f"{len(OPS)} rows, {total['tests']:.0f} tests: {passed:.0f} passed, {total['failures']:.0f} failed, {total['errors']:.0f} errors, "
            f"{total['skipped']:.0f} skipped, in {total['time'] / 60:.1f} minutes.{whole}",
            "Branches and loops (`higher_order.*`) take graphs: tests/passes/test_parts.py.",
            "",
            f"{_machine()}, {date.today().isoformat()}, torch {torch.__version__}, NumPy {numpy.__version__}: `{command}`",
            "",
            "| test, once a row (hostile inputs: once a dtype) | what | passed | failed | skipped |",
            "|---|---|---|---|---|",
            *rows,
            f"| others | refusals, views | {_three(rest)} |",
            *([""] if notes else []),
            *notes,
            "",
        ]
    )


def _three(counts: Mapping[str, int]) -> str:
    return " | ".join(str(counts.get(outcome, 0)) for outcome in ("passed", "failed", "skipped"))


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    return f"{model}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "2"))
