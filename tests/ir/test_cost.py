"""What a kernel must do at least: counted by hand for the kernels of the golden block."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sealift.frontend import export_module, from_export
from sealift.ir.dim import dim, parse_dim
from sealift.ir.loop.cost import KernelCost, kernel_cost
from sealift.ir.loop.text import parse_loops
from sealift.ir.loop.types import Call
from sealift.ops import OPS
from sealift.pipeline import emit

GOLDEN = Path(__file__).parents[1] / "expect/golden"
SIZES = {"batch": 3, "seq": 5}
B, S = SIZES["batch"], SIZES["seq"]
ROWS = B * S


@pytest.fixture(scope="module")
def block() -> list[KernelCost]:
    return [kernel_cost(k) for k in parse_loops((GOLDEN / "block/2_optimized.loops").read_text()).kernels]


def numbers(cost: KernelCost) -> tuple[int, int, int]:
    return cost.flops.evaluate(SIZES), cost.read_bytes.evaluate(SIZES), cost.written_bytes.evaluate(SIZES)


def test_layer_norm(block: list[KernelCost]) -> None:
    sum_, mean, squares, scale, out = 16, 1, 16 * 3, 4, 16 * 4
    assert numbers(block[0]) == (ROWS * (sum_ + mean + squares + scale + out), 4 * (16 * ROWS + 16 + 16), 4 * 16 * ROWS)


def test_linear(block: list[KernelCost]) -> None:
    assert numbers(block[1]) == (ROWS * (2 * 16 * 48 + 48), 4 * (16 * ROWS + 48 * 16 + 48), 4 * 48 * ROWS)


def test_attention_reads_only_its_part_of_each_buffer(block: list[KernelCost]) -> None:
    scores = B * 2 * S * S
    qkv = 4 * 3 * 16 * ROWS
    assert numbers(block[2]) == (2 * scores * (8 + 8) + 5 * scores, qkv + ROWS, 4 * 16 * ROWS)  # the mask is one byte an element


def test_linear_with_bias_and_residual(block: list[KernelCost]) -> None:
    assert numbers(block[3]) == (ROWS * (2 * 16 * 16 + 2 * 16), 4 * (16 * ROWS + 16 * 16 + 16 + 16 * ROWS), 4 * 16 * ROWS)


def test_linear_with_activation(block: list[KernelCost]) -> None:
    assert numbers(block[5])[0] == ROWS * (2 * 16 * 64 + 2 * 64)


def test_the_expressions_read_back(block: list[KernelCost]) -> None:
    for cost in block:
        for one in (cost.flops, cost.bytes):
            assert parse_dim(str(one), {s.name: dim(s) for s in one.symbols}).evaluate(SIZES) == one.evaluate(SIZES)
    assert str(block[1].flops) == "1584*batch*seq"


@pytest.mark.parametrize("name", ["block", "mixed", "mlp"])
def test_every_kernel_has_a_cost(name: str) -> None:
    loops = parse_loops((GOLDEN / name / "2_optimized.loops").read_text())
    sizes = {s.name: max(2, s.lo) for s in loops.sizes}
    for kernel in loops.kernels:
        cost = kernel_cost(kernel)
        assert cost.written_bytes.evaluate(sizes) > 0 and cost.read_bytes.evaluate(sizes) >= 0 and cost.flops.evaluate(sizes) >= 0
        assert cost.read_bytes.evaluate(sizes) <= sum(b.numel.evaluate(sizes) * b.dtype.size_bytes for b in (*loops.inputs, *loops.buffers))


def test_a_row_kept_in_the_kernel_is_no_traffic() -> None:
    loops = parse_loops((GOLDEN / "block/1_lowered.loops").read_text())
    fused = parse_loops((GOLDEN / "block/2_optimized.loops").read_text())
    total = [sum(kernel_cost(k).bytes.evaluate(SIZES) for k in one.kernels) for one in (loops, fused)]
    assert total[1] < total[0]


def cost_of(module: torch.nn.Module, *args: torch.Tensor, family: str) -> int:
    """Floating-point operations of the module's kernels that call the family."""
    emitted = emit(from_export(export_module(module.eval(), args, None, None), "m", OPS))
    return sum(kernel_cost(k).flops.evaluate({}) for k in emitted.loops.kernels if any(isinstance(s, Call) and s.family == family for s in k.stages))


def test_transposed_convolution_counts_inputs_times_taps() -> None:
    x = torch.randn(2, 6, 5, 7)
    made = cost_of(torch.nn.ConvTranspose2d(6, 4, (2, 3), stride=2, groups=2, bias=False), x, family="conv")
    assert made == x.numel() * (4 // 2) * 2 * 3 * 2
    direct = cost_of(torch.nn.Conv2d(6, 4, (2, 3), groups=2, bias=False), x, family="conv")
    assert direct == (2 * 4 * 4 * 5) * (6 // 2) * 2 * 3 * 2


@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_counts_the_product_of_every_step(directions: int) -> None:
    steps, batch, hidden = 3, 2, 8
    made = cost_of(torch.nn.LSTM(5, hidden, bidirectional=directions == 2), torch.randn(steps, batch, 5), family="recurrent")
    assert made == directions * steps * batch * (4 * hidden) * (2 * hidden + 2)
    made = cost_of(torch.nn.LSTM(5, hidden, proj_size=3, bidirectional=directions == 2), torch.randn(steps, batch, 5), family="recurrent")
    assert made == directions * steps * batch * ((4 * hidden) * (2 * 3 + 2) + 2 * 3 * hidden)


def test_a_bag_adds_every_row() -> None:
    indices, offsets = torch.tensor([1, 2, 3, 4, 0, 9]), torch.tensor([0, 2])
    assert cost_of(torch.nn.EmbeddingBag(10, 7, mode="sum"), indices, offsets, family="bags") == 6 * 7
