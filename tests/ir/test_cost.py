"""What a kernel must do at least: counted by hand for the kernels of the golden block."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealift.ir.dim import dim, parse_dim
from sealift.ir.loop.cost import KernelCost, kernel_cost
from sealift.ir.loop.text import parse_loops

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
