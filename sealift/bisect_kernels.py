"""bisect_kernels(): which kernel of a package is the first to be off.

Every kernel is judged alone: what it left behind is compared with the exported program's operators, run by eager PyTorch on the values that
the package's own kernels before it gave. So one wrong kernel is named and not all that follow, and no recompilation changes the code that
is looked at. A value of the compiler's own, which the exported program has not, is seen through to the next one that it has."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import torch

from sealift.check_package import OutputReport, compare
from sealift.diag.loc import Loc, union
from sealift.errors import ArgumentError, InputCountError
from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.graph.types import Arg, Graph, Node, Value
from sealift.load import Model
from sealift.recorded_run import Array, Place, RecordedKernel, open_recorded

SLACK = 8.0  # check()'s rule, this many times as wide: a kernel has few roundings to hide among, 2.8 times was seen on MiniLM's sound ones


@dataclass(frozen=True)
class KernelReport:
    kernel: str  # "k7_linear_gelu"
    ops: tuple[str, ...]  # the ATen operators it stands for
    origin: tuple[str, ...]  # the user's lines: "model.py:31 blocks.0.proj: x = self.proj(x)"
    result: OutputReport

    @property
    def ok(self) -> bool:
        return self.result.ok

    def __str__(self) -> str:
        return f"{self.kernel}, {self.result}"


@dataclass(frozen=True)
class BisectReport:
    """kernels: those compared, in the order they run.  unseen: those whose result the exported program has no value for."""

    kernels: tuple[KernelReport, ...]
    unseen: tuple[str, ...]

    @property
    def first(self) -> KernelReport | None:
        return next((k for k in self.kernels if not k.ok), None)

    @property
    def ok(self) -> bool:
        return self.first is None

    def __bool__(self) -> bool:
        return self.ok

    def as_dict(self) -> dict[str, Any]:
        first = self.first
        return {
            "ok": self.ok,
            "first": None if first is None else asdict(first),
            "kernels": [asdict(k) for k in self.kernels],
            "unseen": list(self.unseen),
        }

    def __str__(self) -> str:
        count = f"{len(self.kernels)} kernels compared, each on what the kernels before it gave"
        if self.unseen:
            count += (
                f"; {len(self.unseen)} hold no value of the exported program: {', '.join(self.unseen[:6])}{' ...' if len(self.unseen) > 6 else ''}"
            )
        first = self.first
        if first is None:
            return f"no kernel is off\n{count}"
        lines = [f"{first.kernel} is the first kernel that is off", f"  {first.result}", f"  operators: {', '.join(first.ops)}"]
        lines += [f"  at: {place}" for place in first.origin]
        lines += [f"also off: {k}" for k in self.kernels if not k.ok and k is not first]
        return "\n".join([*lines, count])


def bisect_kernels(
    path: str | os.PathLike[str],
    exported_program: Any,
    inputs: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    model: str | None = None,
    isa: str | None = None,
    kernels: str = "*",
    slack: float = SLACK,
) -> BisectReport:
    """Runs the package's kernels one after another on `inputs` (default: the program's example inputs) and judges each alone.

    kernels: only those whose name fits this pattern ("k7_*", "*gelu*").  slack: how many times as wide as check()'s rule.
    Errors: E-ARG-001 where the package was not compiled from this program, E-PACKAGE-001 where it does not say where results lie."""
    from sealift.frontend import from_export
    from sealift.ops import OPS

    if inputs is None:
        if exported_program.example_inputs is None:
            raise ArgumentError("the program has no example inputs; help: pass inputs=(...)")
        inputs, kwargs = exported_program.example_inputs
    recorded = open_recorded(path, model, isa)
    imported = from_export(exported_program, recorded.name, OPS)
    weights = {fqn: _tensor(w.array, w.dtype) for fqn, w in imported.weights.items()}
    leaves = _input_leaves(recorded.path, recorded.name, imported.graph, inputs, kwargs or {})
    judge = _Judge(imported.graph, weights, leaves, kernels, slack)
    recorded.run([_array(t) for t in leaves], judge.see)
    seen = {k.kernel for k in judge.reports}
    unseen = tuple(k.name for k in recorded.kernels if k.name not in seen and fnmatch.fnmatch(k.name, kernels))
    if recorded.kernels and not judge.reports and kernels == "*":
        raise ArgumentError(f"no kernel of {path} computes a value of this program; help: give the program that the package was compiled from")
    return BisectReport(tuple(judge.reports), unseen)


def _input_leaves(path: str, name: str, graph: Graph, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    loaded = Model(path, name)
    try:
        leaves = loaded._flatten(tuple(inputs), dict(kwargs))
    except InputCountError as error:
        raise ArgumentError(f"{path} was not compiled from this program, whose inputs it does not take: {error}") from error
    if len(leaves) != len(graph.inputs):
        raise ArgumentError(f"{path} takes {len(leaves)} tensors, the program {len(graph.inputs)}; help: give the program it was compiled from")
    return [t.detach().clone() if isinstance(t, torch.Tensor) else torch.as_tensor(t) for t in leaves]


# ---- judging -----------------------------------------------------------------------------------------------------------------------


class _Judge:
    """Sees each kernel's results in turn and compares them with the graph's operators on what was seen before."""

    def __init__(self, graph: Graph, weights: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor], pattern: str, slack: float) -> None:
        self.values = {v.name: v for node in graph.nodes for v in node.outputs}
        self.pattern, self.slack = pattern, slack
        self.eager = _Eager(graph)
        self.known: dict[str, torch.Tensor] = {v.name: t for v, t in zip(graph.inputs, inputs, strict=True)}
        for c in graph.constants:
            self.known[c.value.name] = weights[c.fqn]
        for s in graph.states:
            self.known[s.value.name] = weights[s.fqn].clone()
        self.outputs = [v.name if v is not None else "" for v in graph.outputs]
        self.sizes = _sizes(graph, inputs)
        self.reports: list[KernelReport] = []

    def see(self, kernel: RecordedKernel, place: Place, array: Array) -> None:
        name = self.outputs[place.position] if place.where == "output" else place.value
        if name not in self.values or place.where == "state":
            return
        nodes = self.eager.slice(name, self.known)
        try:
            eager = self.eager.run(nodes, name, self.known, self.sizes, in_double=False)
            exact = self.eager.run(nodes, name, self.known, self.sizes, in_double=True) if eager.is_floating_point() or eager.is_complex() else eager
        except NotRunnable:
            return
        got = _tensor(array.copy(), place.dtype)
        if eager.is_complex() and not got.is_complex():  # kernels hold complex numbers as pairs
            if got.shape[-1:] != (2,):
                return
            got = torch.view_as_complex(got.contiguous())
        compared = [(compare(name, aligned, eager, exact, self.slack), aligned) for aligned in _shaped(got, eager.shape)]
        if not compared:  # kept in a shape of the compiler's own
            return
        result, self.known[name] = min(compared, key=lambda pair: pair[0].max_error)
        if fnmatch.fnmatch(kernel.name, self.pattern):
            self.reports.append(KernelReport(kernel.name, kernel.ops, _places(union(n.loc for n in nodes), kernel), result))


def _places(loc: Loc, kernel: RecordedKernel) -> tuple[str, ...]:
    return tuple(f"{p}: {p.code}" if p.code else str(p) for p in loc.places) or kernel.origin


def _sizes(graph: Graph, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
    """What each symbol is for these inputs: a size of its own, or told from a multiple of it (2*half)."""
    found: dict[str, int] = {}
    pairs = [(size, n) for v, t in zip(graph.inputs, inputs, strict=True) for size, n in zip(v.type.shape, t.shape)]
    for s in graph.sizes:
        for size, n in pairs:
            linear = size.linear_in(s)
            if linear is not None and all(part.is_const for part in linear) and linear[0].value > 0:
                found[s.name] = (n - linear[1].value) // linear[0].value
                break
    return found


def _shaped(got: torch.Tensor, wanted: torch.Size) -> list[torch.Tensor]:
    """`got` in every way it can be what has the shape `wanted`: kept without dimensions of one, or without those along which it is the
    same; which of two equal sizes was left out cannot be told from the sizes."""
    if got.numel() == wanted.numel():
        return [got.reshape(wanted)]
    kept = [n for n in got.shape if n != 1]
    ways = (p for p in combinations(range(len(wanted)), len(kept)) if [wanted[d] for d in p] == kept)
    return [got.reshape([wanted[d] if d in p else 1 for d in range(len(wanted))]).expand(wanted) for p in ways]


# ---- the exported program's operators, run by eager --------------------------------------------------------------------------------


class NotRunnable(Exception):
    """An operator that eager does not have by this name, or that does not take the values it is given."""


class _Eager:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {v.name: i for i, node in enumerate(graph.nodes) for v in node.outputs}

    def slice(self, name: str, known: Mapping[str, Any]) -> list[Node]:
        """The nodes that compute `name` from what is known, in order."""
        needed: set[int] = set()
        wanted = [name]
        while wanted:
            position = self.makers.get(wanted.pop())
            if position is None or position in needed:
                continue
            needed.add(position)
            wanted += [v.name for v in self.graph.nodes[position].inputs if v.name not in known]
        return [self.graph.nodes[i] for i in sorted(needed)]

    def run(self, nodes: Sequence[Node], name: str, known: Mapping[str, torch.Tensor], sizes: Mapping[str, int], *, in_double: bool) -> torch.Tensor:
        env: dict[str, torch.Tensor] = {}
        made_here = {v.name for node in nodes for v in node.outputs}
        with torch.no_grad():
            for node in nodes:
                for v in node.inputs:
                    if v.name not in env and v.name not in made_here:
                        env[v.name] = _wide(known[v.name]) if in_double else known[v.name]
                function = _overload(node.op.name)
                if function is None:
                    raise NotRunnable(node.op.name)
                arguments = {_renamed(node, key): _torch_arg(arg, env, sizes, in_double) for key, arg in node.args}
                try:
                    result = function(**_with_placement(function, arguments))
                except RuntimeError as error:
                    raise NotRunnable(f"{node.op.name}: {error}") from error
                results = result if isinstance(result, (tuple, list)) else (result,)
                env |= {v.name: t for v, t in zip(node.outputs, results, strict=False)}
        return env[name]


_VIEWS = ("aten.view.default", "aten._unsafe_view.default")


def _renamed(node: Node, parameter: str) -> str:
    return "shape" if node.op.name in _VIEWS and parameter == "size" else parameter


def _with_placement(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The import leaves out where a tensor lies; some schemas insist on it."""
    for parameter in function._schema.arguments:
        if parameter.name not in arguments and not parameter.has_default_value():
            arguments[parameter.name] = torch.device("cpu") if parameter.name == "device" else None
    return arguments


def _overload(name: str) -> Any:
    if name in _VIEWS:  # what is a view in the program need not be one of a value that was copied
        return torch.ops.aten.reshape.default
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)


def _torch_arg(arg: Arg, env: Mapping[str, torch.Tensor], sizes: Mapping[str, int], in_double: bool) -> Any:
    if isinstance(arg, Value):
        return env[arg.name]
    if isinstance(arg, Dim):
        return arg.evaluate(sizes)
    if isinstance(arg, DType):
        return torch.float64 if in_double and arg.is_float else getattr(torch, arg.torch_name)
    if isinstance(arg, tuple):
        return [_torch_arg(a, env, sizes, in_double) for a in arg]
    return arg


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.double() if t.is_floating_point() else t.to(torch.complex128) if t.is_complex() else t


def _tensor(array: Any, dtype: DType) -> torch.Tensor:
    if dtype is DType.BF16:
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array) if array.flags.writeable else torch.from_numpy(array.copy())


def _array(t: torch.Tensor) -> Array:
    contiguous = t.detach().resolve_conj().resolve_neg().contiguous()
    array: Array = contiguous.view(torch.int16).numpy().view("uint16") if t.dtype is torch.bfloat16 else contiguous.numpy()
    return array
