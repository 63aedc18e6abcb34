"""The graph IR: a model as operators on tensors, with value semantics.

Mutation is explicit (states in, state updates out), views are operators like any other, constants are referred to by name. A node's
arguments keep the structure of the operator's schema, by parameter name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sealift.diag.loc import Loc
from sealift.ir.dim import Dim, Sym
from sealift.ir.dtype import DType


@dataclass(frozen=True)
class TensorType:
    dtype: DType
    shape: tuple[Dim, ...]
    order: tuple[int, ...] | None = None  # dimensions from outermost to innermost in eager's memory; None: as they stand

    def __str__(self) -> str:
        dims = ", ".join(str(d) for d in self.shape)
        order = f" order({', '.join(map(str, self.order))})" if self.order is not None else ""
        return f"{self.dtype}[{dims}]{order}"


@dataclass(frozen=True)
class Value:
    name: str
    type: TensorType

    @cached_property
    def _hash(self) -> int:
        return hash(self.name)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"%{self.name}"


Arg = Any  # Value | Dim | int | float | complex | bool | str | DType | None | Graph | tuple[Arg, ...]


@dataclass(frozen=True)
class Param:
    """A parameter of an operator's schema."""

    name: str
    default: Any = None
    required: bool = True


@dataclass(frozen=True)
class OpDef:
    """One operator: the only place that knows it. `lower` takes a sealift.ops.lang.Builder and the schema's parameters, tensors as
    sealift.ops.lang.Tensor, and returns the result's Tensor (a tuple for several): its shape and dtype are the type rule."""

    name: str  # "aten.relu.default"
    params: tuple[Param, ...]
    lower: Callable[..., Any]
    samples: str = ""  # OpInfo name ("nn.functional.relu"), resolved only in tests; "" with own samples in tests/ops
    rtol: float = 0.0  # against eager, for float32; 0: the same bits
    atol: float = 0.0

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Node:
    op: OpDef
    args: tuple[tuple[str, Arg], ...]  # (parameter, argument) in schema order; defaults left out
    outputs: tuple[Value, ...]
    loc: Loc = field(default_factory=Loc)

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """Every tensor among the arguments, in order."""
        return tuple(v for _, a in self.args for v in values_in(a))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs among the arguments: branches, a loop's condition and body."""
        return tuple(a for _, a in self.args if isinstance(a, Graph))

    def arg(self, name: str) -> Arg:
        for key, value in self.args:
            if key == name:
                return value
        for p in self.op.params:
            if p.name == name:
                return p.default
        raise KeyError(f"{self.op.name} has no parameter {name!r}")


def values_in(arg: Arg) -> Iterator[Value]:
    if isinstance(arg, Value):
        yield arg
    elif isinstance(arg, tuple):
        for a in arg:
            yield from values_in(a)


@dataclass(frozen=True)
class Constant:
    """A parameter, buffer or lifted tensor: its value is found by `fqn` in the weights that travel beside the graph."""

    value: Value
    fqn: str
    kind: str  # "parameter" | "buffer" | "tensor"


@dataclass(frozen=True)
class State:
    """A buffer that the model mutates: `value` is what a run starts with, `update` what it leaves behind."""

    value: Value
    fqn: str
    update: Value


@dataclass(frozen=True)
class InputUpdate:
    """An input that the model changes in place: the caller's tensor holds `update` when the run ends."""

    value: Value
    update: Value


@dataclass(frozen=True)
class Graph:
    name: str
    sizes: tuple[Sym, ...]  # the symbols of its shapes, in order of first use by the inputs
    inputs: tuple[Value, ...]
    constants: tuple[Constant, ...]
    states: tuple[State, ...]
    nodes: tuple[Node, ...]  # every value is defined before it is used
    outputs: tuple[Value | None, ...]  # None: the model returns None there
    output_names: tuple[str, ...] = ()
    in_spec: str = ""  # pytrees, as torch.utils._pytree.treespec_dumps writes them
    out_spec: str = ""
    input_updates: tuple[InputUpdate, ...] = ()

    def __str__(self) -> str:
        from sealift.ir.graph.text import print_graph  # which imports this file

        return print_graph(self)
