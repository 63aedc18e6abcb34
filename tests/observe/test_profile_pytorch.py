"""`sealift profile` on programs that use PyTorch, alone and beside a sealift model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.test_profile import SEALIFT_ONLY, counts, package, profiled

__all__ = ["package"]  # the fixture

pytestmark = pytest.mark.usefixtures("bridge")

TORCH = """
import sys, torch
for _ in range(int(sys.argv[1])):
    torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
"""


def test_pytorch_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TORCH)
    _, snapshot = profiled("--bursts", "1", program, "300")
    assert counts(snapshot)["aten::linear"] == 300
    assert counts(snapshot)["aten::ones"] == 600
    linear = next(s for s in snapshot.series if s.operator == "aten::linear")
    assert linear.self_ns is not None and 0 < linear.self_ns < linear.total_ns
    assert all("measure" not in name for name in counts(snapshot))  # what the recorder does to know its own cost is nobody's operator


def test_a_program_with_both(tmp_path: Path, package: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SEALIFT_ONLY.replace('assert "torch" not in sys.modules', "import torch\nfor _ in range(50): torch.ones(3)"))
    _, snapshot = profiled(program, package, "200")
    assert counts(snapshot)["k0_linear_relu"] == 200 and counts(snapshot)["aten::ones"] == 50
    assert {s.source for s in snapshot.series} == {"torch", "sealift"}


def test_a_trace_and_a_flame_graph_of_calls(tmp_path: Path) -> None:
    program, out = tmp_path / "program.py", tmp_path / "run"
    program.write_text(TORCH)
    profiled("--every", "burst", "--out", out, program, "300")
    page = (out / "flame.html").read_text()
    outer = re.search('data-depth="2" data-name="aten::linear"', page)
    inner = re.search(
        'data-depth="[345]" data-name="aten::addmm"|data-depth="[345]" data-name="aten::matmul"|data-depth="[345]" data-name="aten::t"', page
    )
    assert outer and inner, re.findall('data-name="[^"]*"', page)
    assert '"ph":"X","name":"aten::linear"' in (out / "trace.json").read_text()


LOADER = """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((4,), float(i)).mul(2)
if __name__ == "__main__":
    torch.set_num_threads(1)
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
        batch.cos()
"""


def test_the_workers_of_a_data_loader(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LOADER)
    answer, snapshot = profiled("--bursts", "0", program)
    assert counts(snapshot)["aten::mul"] == 64 and counts(snapshot)["aten::cos"] == 8  # in two children; in the parent
    assert len(answer["processes"]) == 3


STEPS = """
import time, torch
from sealift import observe
x = torch.ones(8, 16)
for i in range(40):
    observe.step()
    with observe.debug_info(tenant="even" if i % 2 == 0 else "odd"):
        torch.nn.functional.layer_norm(x, (16,))
observe.step()
"""


@pytest.mark.parametrize("every", ["operator", "burst", "step"])
def test_what_is_drawn_at_random(tmp_path: Path, every: str) -> None:
    """With everything drawn, each way counts the same calls, tells labels apart, and the ways that see whole stretches know self times."""
    program = tmp_path / "program.py"
    program.write_text(STEPS)
    words = ["--every", every, "--sampling", "1", "--duty-cycle", "1", "--bursts", "0", "--label", "tenant"]
    answer, snapshot = profiled(*words, program)
    outer = [s for s in snapshot.series if s.operator == "aten::layer_norm"]
    assert sorted((s.labels, s.count) for s in outer) == [((("tenant", "even"),), 20), ((("tenant", "odd"),), 20)]
    assert all((s.self_ns is not None and 0 < s.self_ns < s.total_ns) == (every != "operator") for s in outer)
    assert answer["exit_code"] == 0
