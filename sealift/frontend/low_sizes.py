"""Sizes below those that export reasoned with.

torch traces a dynamic size as one of 2 or more, whatever range it then declares: x[:2] has two rows to it, and x[1] exists. A declared range may
go on to 1 and 0. There every operator's own shape rule is asked, on tensors without data: where one refuses, or gives another shape
than export wrote down, eager raises or answers in that other shape, and a compiled model would read and write past the end."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from sealift.frontend.decompose import IMPLIED, Program, control_row, target_name
from sealift.frontend.recurrent_shapes import recurrent_shapes
from sealift.frontend.sizes import TRACED_LEAST, Sizes, UnsupportedSize


@dataclass(frozen=True)
class LowSize:
    """A symbol's size at which `node` does not do what export says: it has to be left out of the range."""

    torch_name: str
    size: int
    node: fx.Node
    why: str


def deviating_low_sizes(program: Program, sizes: Sizes) -> Iterator[LowSize]:
    """The largest such size of every symbol, the others being at sizes that export reasoned with; then of the first symbols for which the lowest
    sizes of all at once are too low. The caller raises the lower bound before it asks for the next."""
    agreeing: set[Any] = set()

    def shapes_at(point: Mapping[str, int]) -> _Shapes:
        return _Shapes(sizes, {str(sizes.symbols[name]): size for name, size in point.items()}, agreeing)

    def at(point: Mapping[str, int]) -> _Deviation | None:
        with contextlib.suppress(UnsupportedSize), recurrent_shapes(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            traced = shapes_at({name: max(lo, TRACED_LEAST) for name, lo in least.items()})
            return shapes_at(point).first_deviation(program.graph_module, traced)
        return None  # a size that is none of ours is refused where it is met

    least = {name: _bounds(sizes, name)[0] for name in sizes.symbols}
    for torch_name in sizes.symbols:
        low, high = _bounds(sizes, torch_name)
        for size in reversed(range(low, min(TRACED_LEAST, high + 1))):
            found = at({name: size if name == torch_name else max(lo, TRACED_LEAST) for name, lo in least.items()})
            if found is not None:
                yield LowSize(torch_name, size, found.node, found.why)
                break
    low_ones = [name for name in sizes.symbols if _bounds(sizes, name)[0] < TRACED_LEAST]
    for torch_name in low_ones if len(low_ones) > 1 else []:
        found = at({name: _bounds(sizes, name)[0] for name in sizes.symbols})
        if found is None:
            break
        yield LowSize(torch_name, TRACED_LEAST - 1, found.node, found.why)


def _bounds(sizes: Sizes, torch_name: str) -> tuple[int, int]:
    symbol = sizes.symbols[torch_name].as_sym
    assert symbol is not None
    return symbol.lo, symbol.hi if isinstance(symbol.hi, int) else TRACED_LEAST


@dataclass(frozen=True)
class _Deviation:
    node: fx.Node
    why: str


@dataclass(frozen=True)
class _Tensor:
    """A tensor's type at the sizes that are tried."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class _Shapes:
    """The operators of a program, each called on tensors without data of the shapes that export says, at the given sizes. Calls that were
    found to agree are not made again: the layers of a network are alike."""

    sizes: Sizes
    values: Mapping[str, int]
    agreeing: set[Any]
    numbers: dict[Any, int] = field(default_factory=dict)

    def first_deviation(self, module: fx.GraphModule, traced: _Shapes) -> _Deviation | None:
        """A call that deviates at `traced` sizes, too, says nothing: its shape rule is another than the CPU's, as embedding_bag's on this device."""
        for node in module.graph.nodes:
            if node.op != "call_function" or target_name(node) in IMPLIED:
                continue
            if control_row(node) is not None:
                for part in node.all_input_nodes:
                    inner = getattr(module, str(part.target), None) if part.op == "get_attr" else None
                    found = self.first_deviation(inner, traced) if isinstance(inner, fx.GraphModule) else None
                    if found is not None:
                        return found
            elif isinstance(node.target, torch._ops.OpOverload):
                why = self.deviation(node)
                if why and not traced.deviation(node):
                    return _Deviation(node, why)
        return None

    def deviation(self, node: fx.Node) -> str:
        """How the call differs from what export says of it; "": not at all."""
        try:
            said = _tensors(self.at_sizes(node.meta.get("val")))
        except ZeroDivisionError:
            return "a size of its result divides by 0"
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: self.at_sizes(n.meta.get("val")))
        call = (node.target, repr(args), repr(kwargs), tuple(said))
        if not said or call in self.agreeing:
            return ""
        try:
            shapes = _call_on_meta(node.target, args, kwargs)  # type: ignore[arg-type]
        except NotImplementedError:
            return ""  # it has no shape rule
        except Exception as error:
            text = str(error).strip()
            return f"eager raises: {text.splitlines()[0] if text else type(error).__name__}"
        for got, expected in zip(shapes, said, strict=False):
            if got != expected.shape:
                return f"eager's result is of size {_text(got)}, export's of {_text(expected.shape)}"
        self.agreeing.add(call)
        return ""

    def at_sizes(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _Tensor(tuple(self.number(s) for s in value.shape), value.dtype)
        if isinstance(value, (tuple, list)):
            return [self.at_sizes(v) for v in value]
        return self.number(value) if isinstance(value, torch.SymInt) else value

    def number(self, size: Any) -> int:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self.numbers:
            self.numbers[expression] = self.sizes.dim(size).evaluate(self.values)
        return self.numbers[expression]


def _call_on_meta(operator: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any]) -> list[tuple[int, ...]]:
    """The shapes of the results."""
    args, kwargs = pytree.tree_map_only(torch.device, lambda _: torch.device("meta"), (args, kwargs))
    if any(a.name == "device" for a in operator._schema.arguments[len(args) :]):
        kwargs = {**kwargs, "device": torch.device("meta")}
    args, kwargs = pytree.tree_map_only(_Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype, device="meta"), (args, kwargs))
    return [tuple(t.shape) for t in pytree.tree_leaves(operator(*args, **kwargs)) if isinstance(t, torch.Tensor)]


def _tensors(value: Any) -> list[_Tensor]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, _Tensor)]


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
