"""The benchmark's page, from figures that are given: what each table says, and that nothing that failed is left out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import bench_report

        return bench_report
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


SEALIFT = {"compile_s": [2.0, 3.0, 1.0], "bytes": 200_000, "calls": {"1": [1e-3, 3e-3, 2e-3]}, "first_s": [0.2], "rss_mb": 50.0, "error_ratio": 0.5}
AOTI = {"compile_s": [30.0], "bytes": 1_500_000, "calls": {"1": [4e-3]}, "first_s": [3.0], "rss_mb": 300.0, "error_ratio": 0.25}
FIXED = {"calls": {"1": [8e-3]}, "fixed_sizes": "AssertionError: batch"}
RESULTS = {
    "machine": "a machine",
    "versions": "some versions",
    "rounds": 3,
    "models": {
        "mlp": {"engines": {"sealift": SEALIFT, "aoti": AOTI, "executorch": {"failed": "RuntimeError: `no` kernel"}, "openvino": FIXED}},
        "gone": {"engines": {}, "failed": "ModuleNotFoundError: pip install it"},
    },
    "c": {"first_sealift": 3e-3, "first_floor": 1e-3, "first_aoti": 0.3, "c_call_1": 3e-7, "c_call_2": 4e-7},
}


def test_the_page_says_what_was_measured(report: Any) -> None:
    page = report.page(RESULTS, "make bench", "How.", "p.svg")
    assert "| MLP 10-16-1, batch 8 | 2.00 ms | 2.00x (4.00 ms) | 4.00x (8.00 ms) | fails |" in page  # medians, and the peer over sealift
    assert "| MLP 10-16-1, batch 8 | 2.00 s | 15.00x (30.00 s) |  | fails |" in page
    assert "| MLP 10-16-1, batch 8 | 0.5 | 0.25 |  | fails |" in page
    assert "300.00 ms (100.0x)" in page and "![" in page


def test_failures_stand_with_their_reasons(report: Any) -> None:
    page = report.page(RESULTS, "make bench", "How.", "p.svg")
    assert "- MLP 10-16-1, batch 8, ExecuTorch XNNPACK: `RuntimeError: 'no' kernel`" in page
    assert "- MLP 10-16-1, batch 8, OpenVINO f32: measured with the sizes fixed; dynamic: `AssertionError: batch`" in page
    assert "- gone: not measured: `ModuleNotFoundError: pip install it`" in page


def test_what_ran_in_another_call_is_named(report: Any) -> None:
    engines = {"sealift": {**SEALIFT, "began": "2026-01-02T03:04:05"}, "aoti": {**AOTI, "began": "2026-01-01T03:04:05"}}
    assert "- MLP 10-16-1, batch 8: AOTInductor" in report.page({**RESULTS, "models": {"mlp": {"engines": engines}}}, "make bench", "How.", "p.svg")
    assert "all of a model's figures are of one call" in report.page(RESULTS, "make bench", "How.", "p.svg")


def test_the_speed_of_a_wrong_answer_is_not_shown(report: Any) -> None:
    wrong = {"calls": {"1": [1e-3]}, "compile_s": [1.0], "error_note": "shape [1, 16, 17], eager has [1, 128, 17]"}
    page = report.page({**RESULTS, "models": {"mlp": {"engines": {"sealift": SEALIFT, "openvino": wrong}}}}, "make bench", "How.", "p.svg")
    assert "| MLP 10-16-1, batch 8 | 2.00 ms | wrong |" in page
    assert "| MLP 10-16-1, batch 8 | 0.5 | shape [1, 16, 17], eager has [1, 128, 17] |" in page


def test_readmes_table_is_written_between_its_marks(report: Any, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- figures: make bench -->\nold\n<!-- end of figures -->\nafter\n")
    report.write_readme(readme, RESULTS)
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| compile, MLP 10-16-1, batch 8 | 2.00 s | 30.00 s | 15.0x |" in text


def test_every_model_case_is_found() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from bench_models import all_cases, case_of, full_cases, measured_cases
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    assert {"mlp", "minilm", "bert_base"} <= set(full_cases()) <= set(all_cases())
    assert not any(name.endswith("_small") for name in full_cases())
    assert {case_of(name)[0].name for name in measured_cases()} == set(full_cases())
    assert len({case_of(f"dlrm_26_batch_{n}") for n in (1, 32, 256)}) == 3
