"""Sizes below those that export reasoned with.

torch traces a dynamic size as one of 2 or more, whatever range it then declares: x[:2] has two rows to it, and x[1] exists. A declared range may
go on to 1 and 0. There every operator's own shape rule is asked, on tensors without data: where one refuses, or gives another shape
than export wrote down, eager raises or answers in that other shape, and a compiled model would read and write past the end."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode, UnsupportedOperatorException
from torch.utils import _pytree as pytree

from sealift.frontend.decompose import IMPLIED, Program, control_row, target_name
from sealift.frontend.recurrent_shapes import recurrent_shapes
from sealift.frontend.sizes import TRACED_LEAST, Sizes, UnsupportedSize

_KNOWS_NO_SHAPE = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException, NotImplementedError, UnsupportedSize)


@dataclass(frozen=True)
class LowSize:
    """A symbol's size at which `node` does not do what export says: it has to be left out of the range."""

    torch_name: str
    size: int
    node: fx.Node
    why: str


class _Deviates(Exception):
    def __init__(self, node: fx.Node, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


def deviating_low_sizes(program: Program, sizes: Sizes) -> Iterator[LowSize]:
    """The largest such size of every symbol, the others being at sizes that export reasoned with; then of the first symbols for which the lowest
    sizes of all at once are too low. The caller raises the lower bound before it asks for the next."""
    least = {name: _bounds(sizes, name)[0] for name in sizes.symbols}
    for torch_name in sizes.symbols:
        low, high = _bounds(sizes, torch_name)
        for size in reversed(range(low, min(TRACED_LEAST, high + 1))):
            found = _try(program, sizes, {name: size if name == torch_name else max(lo, TRACED_LEAST) for name, lo in least.items()})
            if found is not None:
                yield LowSize(torch_name, size, found.node, found.why)
                break
    low_ones = [name for name in sizes.symbols if _bounds(sizes, name)[0] < TRACED_LEAST]
    for torch_name in low_ones if len(low_ones) > 1 else []:
        found = _try(program, sizes, {name: _bounds(sizes, name)[0] for name in sizes.symbols})
        if found is None:
            break
        yield LowSize(torch_name, TRACED_LEAST - 1, found.node, found.why)


def _bounds(sizes: Sizes, torch_name: str) -> tuple[int, int]:
    symbol = sizes.symbols[torch_name].as_sym
    assert symbol is not None
    return symbol.lo, symbol.hi if isinstance(symbol.hi, int) else TRACED_LEAST


def _try(program: Program, sizes: Sizes, point: Mapping[str, int]) -> _Deviates | None:
    """`point`: a size for each of torch's symbols."""
    values = {str(sizes.symbols[name]): min(size, _bounds(sizes, name)[1]) for name, size in point.items()}
    with contextlib.ExitStack() as stack:
        stack.enter_context(recurrent_shapes())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(torch.no_grad())
        try:
            _Shapes(program.graph_module, sizes, values).run()
        except _Deviates as found:
            return found
        except UnsupportedSize:
            return None  # refused where it is met
    return None


class _Shapes(fx.Interpreter):
    """Runs a program on tensors without data, of the given sizes, and compares every shape with export's."""

    def __init__(self, module: fx.GraphModule, sizes: Sizes, values: Mapping[str, int]) -> None:
        super().__init__(module)
        self.sizes, self.values = sizes, values

    def run_node(self, n: fx.Node) -> Any:
        try:
            expected = pytree.tree_map(self.at_sizes, n.meta.get("val"))
        except ZeroDivisionError:
            raise _Deviates(n, "a size of its result divides by 0") from None
        if n.op == "placeholder":
            return expected
        if n.op != "call_function":
            return super().run_node(n)
        if target_name(n) in IMPLIED:
            return expected
        if control_row(n) is not None:
            for part in self.fetch_args_kwargs_from_env(n)[0]:
                if isinstance(part, fx.GraphModule):
                    _Shapes(part, self.sizes, self.values).run()
            return expected
        try:
            result = super().run_node(n)
        except _KNOWS_NO_SHAPE:
            return expected
        except Exception as error:
            raise _Deviates(n, f"eager raises: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}") from None
        for got, said in zip(_shapes(result), _shapes(expected), strict=False):
            if got != said:
                raise _Deviates(n, f"eager's result is of size {_text(got)}, export's of {_text(said)}")
        return result

    def at_sizes(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty([self.number(s) for s in value.shape], dtype=value.dtype)
        return self.number(value) if isinstance(value, torch.SymInt) else value

    def number(self, size: Any) -> int:
        return self.sizes.dim(size).evaluate(self.values)


def _shapes(result: Any) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
