"""Runs every operator test (`make conformance`) and writes docs/conformance.md: what ran, where, and what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import numpy
import torch

from sealift.ops import OPS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/conformance.md"
WHAT = {  # a test, and what it holds every row to
    "test_matches_eager": "interpreted, on OpInfo's and our own calls, over ten dtypes",
    "test_matches_eager_on_hostile_inputs": "interpreted, on NaN, infinities, -0.0, empty, 0-d, strided and size-1 inputs",
    "test_compiled_matches_eager": "both once more, fused and compiled",
    "test_symbolic_sizes": "lowered with a symbol for a size, interpreted at 0, 1, 7 and the call's own size",
    "test_symbolic_sizes_compiled": "the same, compiled",
}


def main(jobs: str) -> int:
    results = ROOT / "build/conformance.xml"
    results.parent.mkdir(exist_ok=True)
    command = ["-m", "pytest", "-q", "-n", jobs, "tests/ops", f"--junitxml={results.relative_to(ROOT)}"]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env={**os.environ, "SEALIFT_ALL_ROWS": "1"})
    suite = ElementTree.parse(results).getroot().find("testsuite")
    if suite is None:
        return done.returncode or 1
    PAGE.write_text(page(suite, f"SEALIFT_ALL_ROWS=1 python {' '.join(command)}"))
    return done.returncode


def page(suite: ElementTree.Element, command: str) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    notes: list[str] = []
    for case in suite.iter("testcase"):
        outcome = "passed"
        for kind, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            found = case.find(kind)
            if found is not None:
                outcome = name
                notes.append(f"- {name}: `{case.get('name')}`: {(found.get('message') or '').splitlines()[0][:200]}")
        counts[(case.get("name") or "").partition("[")[0]][outcome] += 1
    rows = [f"| {name} | {what} | {_three(counts.pop(name, Counter()))} |" for name, what in WHAT.items()]
    rest = sum(counts.values(), Counter[str]())
    total = int(suite.get("tests") or 0) - int(suite.get("failures") or 0) - int(suite.get("errors") or 0) - int(suite.get("skipped") or 0)
    return "\n".join(
        [
            "# Conformance of the operators",
            "",
            "Written by `make conformance`. Each row of the operator table against eager PyTorch; where a row deviates on purpose,",
            "tests/ops/own_samples.py says why (`DEVIATIONS`).",
            "",
            f"{len(OPS)} rows, {suite.get('tests')} tests: {total} passed, {suite.get('failures')} failed, {suite.get('errors')} errors, "
            f"{suite.get('skipped')} skipped, in {float(suite.get('time') or 0) / 60:.1f} minutes.",
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
