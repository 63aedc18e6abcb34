"""The loop IR: kernels made of stages over buffers.

A stage is one loop nest that fills one buffer (`Map`, `Reduce`, `Scan`), or a call of a kernel family (`Call`). A kernel is a list of
stages that run for one row after another: the first `num_row_axes` axes of every stage are the same loop. `Loops` is a whole model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sealift.diag.loc import Loc
from sealift.ir.dim import Dim, Sym, dim
from sealift.ir.loop.expr import Buffer, Expr, Load
from sealift.ir.loop.prim import ArgCombine, Combine


@dataclass(frozen=True)
class Axis:
    """A loop over [0, extent). Its symbol stands in indices."""

    name: str
    extent: Dim

    @cached_property
    def sym(self) -> Sym:
        return Sym(self.name, 0, self.extent.value - 1 if self.extent.is_const else self.extent - 1)

    @cached_property
    def dim(self) -> Dim:
        return dim(self.sym)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Map:
    """for axes: out[index] = value        (or out[index] = combine(out[index], value) when `combine` is given: a scatter)"""

    out: Buffer
    axes: tuple[Axis, ...]
    index: tuple[Dim | Expr, ...]
    value: Expr
    combine: Combine | None = None


@dataclass(frozen=True)
class Reduce:
    """for axes: out[axes] = combine over reduced of value (ArgCombine: the flat position among `reduced`, an i64)

    The accumulator has the dtype of `value` (of `out`, for the others); SUM of bool does not exist: cast first.
    """

    out: Buffer
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    combine: Combine | ArgCombine
    value: Expr


@dataclass(frozen=True)
class Scan:
    """for axes: out[axes] = combine of value over all positions of `along` up to this one.   `along` is one of axes. What is combined has
    the value's dtype; an f32 buffer takes an f64 result, rounded."""

    out: Buffer
    axes: tuple[Axis, ...]
    along: Axis
    combine: Combine
    value: Expr


@dataclass(frozen=True)
class Operand:
    """A tensor as a kernel family sees it: element `load` at `axes`. After fusion the load may reach through views."""

    axes: tuple[Axis, ...]
    load: Load

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(a.extent for a in self.axes)


@dataclass(frozen=True)
class Call:
    """A kernel family: `family` names it, `attrs` are its own. Outputs are whole buffers."""

    family: str
    outs: tuple[Buffer, ...]
    operands: tuple[tuple[str, Operand], ...]  # by role: ("a", ...), ("b", ...)
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)

    def operand(self, role: str) -> Operand | None:
        return dict(self.operands).get(role)

    @property
    def parts(self) -> tuple[Loops, ...]:
        """The loops among the attributes: branches, a loop's condition and body. Their inputs are the operands in0, in1, ... in order."""
        return tuple(value for _, value in self.attrs if isinstance(value, Loops))


Stage = Map | Reduce | Scan | Call


def outputs_of(stage: Stage) -> tuple[Buffer, ...]:
    return stage.outs if isinstance(stage, Call) else (stage.out,)


@dataclass(frozen=True)
class Kernel:
    """Stages run in order for each row; a row is one value of the first `num_row_axes` axes. A Call begins its kernel: it
    stands alone, or a Map over its output follows that is run on each tile the family finishes (an epilogue)."""

    name: str
    stages: tuple[Stage, ...]
    num_row_axes: int = 0
    ops: tuple[str, ...] = ()  # the ATen operators it stands for
    loc: Loc = field(default_factory=Loc)


@dataclass(frozen=True)
class Loops:
    """A model in loops. `sizes` are the symbols of its shapes, in order; every buffer is listed, named uniquely."""

    name: str
    sizes: tuple[Sym, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer | None, ...]  # kind output, or an input returned as it is; None where the model returns None
    buffers: tuple[Buffer, ...]  # all others: weights, states, temps, rows
    kernels: tuple[Kernel, ...]
    state_updates: tuple[tuple[Buffer, Buffer], ...] = ()  # (state, its new value): taken over when the run ends

    @property
    def parts(self) -> list[Loops]:
        """The loops that its calls hold, theirs included, each before the one it is part of."""
        calls = [stage for kernel in self.kernels for stage in kernel.stages if isinstance(stage, Call)]
        return [found for call in calls for part in call.parts for found in (*part.parts, part)]

    def __str__(self) -> str:
        from sealift.ir.loop.text import print_loops  # which imports this file

        return print_loops(self)
