"""torch's symbolic sizes -> Dims. sympy stays in this file.

Names: a symbol takes the name the user gave it, Dim("batch"); one the user left to torch (Dim.AUTO, Dim.DYNAMIC, or an exported
program that was saved and loaded, which loses the names) is named after the input it is first a size of, `x_dim0`.

Ranges are torch's, but for one thing: export writes 2 as the lower bound of Dim.AUTO and Dim.DYNAMIC, where its tracing told sizes 0
and 1 apart. The model computes the same for 1, and a batch of one is what people send, so an unnamed symbol's lower bound of 2 becomes
1. A named dimension keeps its own: Dim("b", min=2) refuses 1, Dim("b") takes 0, as torch has it. The exceptions are a size that
squeeze() looks at: eager drops that dimension when it is 1, and a compiled model's ranks are fixed, so there 1 stays out of the range;
and a size at which an operator does something else than export says (frontend/low_sizes.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from sealift.ir.dim import UNBOUNDED, ZERO, Dim, Sym, dim, dim_max, dim_min, is_at_most

TRACED_LEAST = 2  # what torch's tracing takes a dynamic size for, at least
_MOST_RAISED = 64  # by how much a lower bound may rise before a squeeze is refused
_RESERVED = re.compile(r"[irk]\d+$")  # the names of loop axes


SIZE_BY_VALUES = "the size of its result depends on values, sealift's sizes on inputs' sizes: choose with torch.where, or multiply by a mask"

NUMBER_AMONG_INPUTS = "sealift's sizes are those of tensors: read it off a tensor's shape (x.shape[0]), or export the number as a constant"


class UnsupportedSize(Exception):
    """A size that a Dim cannot express; the text says which, and `help` the way out where that is known."""

    def __init__(self, text: str, help: str = "") -> None:
        super().__init__(text)
        self.help = help


@dataclass
class Sizes:
    """The symbols of one exported program."""

    symbols: dict[str, Dim] = field(default_factory=dict)  # by torch's name: "s77"
    torch_ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def dim(self, value: Any) -> Dim:
        """A size out of a FakeTensor's shape, or a SymInt out of a node: an int or a symbolic expression."""
        if isinstance(value, int):
            return dim(value)
        if isinstance(value, torch.SymInt):
            return self.from_sympy(value.node.expr)
        raise UnsupportedSize(f"{value!r} of type {type(value).__name__}")

    def from_sympy(self, e: sympy.Basic) -> Dim:
        convert = self.from_sympy
        if isinstance(e, sympy.Integer):
            return dim(int(e))
        if isinstance(e, sympy.Symbol):
            if e.name not in self.symbols:
                if not e.name.startswith("u"):
                    raise UnsupportedSize(f"{e.name} is a number among the inputs", NUMBER_AMONG_INPUTS)
                raise UnsupportedSize(f"{e.name} depends on the data", SIZE_BY_VALUES)
            return self.symbols[e.name]
        args = e.args
        match type(e).__name__:
            case "Add":
                return sum((convert(a) for a in args), ZERO)
            case "Mul":
                total = dim(1)
                for a in args:
                    total = total * convert(a)
                return total
            case "Pow" if isinstance(args[1], sympy.Integer) and int(args[1]) >= 0:
                total = dim(1)
                for _ in range(int(args[1])):
                    total = total * convert(args[0])
                return total
            case "FloorDiv" | "CleanDiv":
                return convert(args[0]) // convert(args[1])
            case "Mod" | "PythonMod":
                return convert(args[0]) % convert(args[1])
            case "ModularIndexing":
                return (convert(args[0]) // convert(args[1])) % convert(args[2])
            case "Max":
                return _fold(dim_max, [convert(a) for a in args])
            case "Min":
                return _fold(dim_min, [convert(a) for a in args])
            case "Identity":
                return convert(args[0])
        raise UnsupportedSize(f"{e} ({type(e).__name__})")

    def holds(self, relation: sympy.Basic) -> bool:
        """Provably true for every size in torch's ranges."""
        if relation is sympy.true:
            return True
        if isinstance(relation, sympy.And):
            return all(self.holds(a) for a in relation.args)
        if isinstance(relation, sympy.Or):
            return any(self.holds(a) for a in relation.args)
        if not isinstance(relation, sympy.core.relational.Relational):
            return False
        try:
            left, right = self._in_torch_range(relation.lhs), self._in_torch_range(relation.rhs)
        except UnsupportedSize:
            return False
        match relation.rel_op:
            case "==":
                return left == right
            case "!=":
                return is_at_most(left + 1, right) or is_at_most(right + 1, left)
            case "<=":
                return is_at_most(left, right)
            case "<":
                return is_at_most(left + 1, right)
            case ">=":
                return is_at_most(right, left)
            case ">":
                return is_at_most(right + 1, left)
        return False

    def keep_at_least(self, least_allowed: int, size: Any) -> str | None:
        """Raises a symbol's lower bound, in torch's range as well, until `size` is never below. Answers the symbol's name, "" if nothing had to
        change; None where no small bound does it."""
        least_size = dim(least_allowed)
        d = self.dim(size)
        if is_at_most(least_size, d):
            return ""
        for torch_name, symbol_dim in self.symbols.items():
            symbol = symbol_dim.as_sym
            if symbol is None or not isinstance(symbol.hi, int) or d.symbols != {symbol}:
                continue
            for least in range(symbol.lo + 1, symbol.lo + _MOST_RAISED + 1):
                raised = dim(Sym(symbol.name, least, symbol.hi))
                if is_at_most(least_size, d.substitute({symbol: raised})) and self.start_at(torch_name, least):
                    return symbol.name
        return None

    def start_at(self, torch_name: str, least: int) -> bool:
        """Raises a symbol's lower bound, in torch's range as well. False where nothing would be left."""
        symbol = self.symbols[torch_name].as_sym
        assert symbol is not None
        if isinstance(symbol.hi, int) and least > symbol.hi:
            return False
        self.symbols[torch_name] = dim(Sym(symbol.name, least, symbol.hi))
        lo, hi = self.torch_ranges[torch_name]
        self.torch_ranges[torch_name] = max(lo, least), hi
        return True

    def _in_torch_range(self, e: sympy.Basic) -> Dim:
        """With the bounds that export reasoned with: what it took for granted is no requirement."""
        mapping: dict[Sym, Dim] = {}
        for torch_name, size in self.symbols.items():
            symbol = size.as_sym
            assert symbol is not None
            lo, hi = self.torch_ranges[torch_name]
            mapping[symbol] = dim(Sym(symbol.name, lo, hi))
        return self.from_sympy(e).substitute(mapping)


def _fold(fn: Any, dims: Iterable[Dim]) -> Dim:
    result: Dim | None = None
    for d in dims:
        result = d if result is None else fn(result, d)
    assert result is not None
    return result


def collect_sizes(ep: ExportedProgram, inputs: Mapping[str, torch.Tensor], taken: Iterable[str] = ()) -> Sizes:
    """Every symbol of the inputs' shapes, in order of first use. `inputs`: the user's tensors by name."""
    debug_names = user_names(ep)
    order: dict[str, tuple[str, int]] = {}  # torch's name -> where it is first a size
    for input_name, tensor in inputs.items():
        for d, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt):
                for symbol in sorted(size.node.expr.free_symbols, key=str):
                    order.setdefault(symbol.name, (input_name, d))
    used = set(taken)
    sizes = Sizes()
    ranges = {str(k): v for k, v in ep.range_constraints.items()}
    for torch_name, (input_name, d) in order.items():
        named = torch_name in debug_names
        base = debug_names.get(torch_name) or f"{re.sub(r'[^A-Za-z0-9_]', '_', input_name)}_dim{d}"
        name = _free_name(base, used)
        value_range = ranges.get(torch_name)
        lo, hi = (0, UNBOUNDED) if value_range is None else (_bound(value_range.lower), _bound(value_range.upper))
        sizes.torch_ranges[torch_name] = lo, hi
        sizes.symbols[torch_name] = dim(Sym(name, 1 if lo == 2 and not named else lo, hi))
    return sizes


def _free_name(base: str, used: set[str]) -> str:
    name = f"{base}_dim" if _RESERVED.fullmatch(base) or base in ("min", "max") else base
    count = 2
    while name in used:
        name, count = f"{base}_{count}", count + 1
    used.add(name)
    return name


def _bound(bound: Any) -> int:
    """A sympy bound; infinities become sealift's."""
    return int(bound) if isinstance(bound, sympy.Integer) and abs(int(bound)) < UNBOUNDED else (UNBOUNDED if bound > 0 else 0)


def shape_env(ep: ExportedProgram) -> Any:
    for node in ep.graph.nodes:
        value = node.meta.get("val")
        mode = getattr(value, "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return mode.shape_env
    return None


def user_names(ep: ExportedProgram) -> dict[str, str]:
    """torch's symbol -> the name in the user's Dim. A derived dimension, 2*batch, names its root."""
    env = shape_env(ep)
    names: dict[str, str] = {}
    if env is None:
        return names
    texts = getattr(env, "source_name_to_debug_name", {})
    for symbol, sources in env.var_to_sources.items():
        root = env.replacements.get(symbol, symbol)
        for source in sources:
            text = texts.get(source.name if isinstance(source.name, str) else source.name())
            if text is None or not root.free_symbols:
                continue
            identifiers = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))
            if len(identifiers) == 1 and len(root.free_symbols) == 1:
                (target,) = root.free_symbols
                (identifier,) = identifiers
                is_direct = root is target and text == identifier
                if is_direct or target.name not in names:
                    names[target.name] = identifier
    return names


def _is_convention(relation: sympy.Basic) -> bool:
    """size > 1 or size >= 2"""
    if isinstance(relation, (sympy.StrictGreaterThan, sympy.GreaterThan)):
        size, bound = relation.args
    elif isinstance(relation, (sympy.StrictLessThan, sympy.LessThan)):
        bound, size = relation.args
    else:
        return False
    strict = isinstance(relation, (sympy.StrictGreaterThan, sympy.StrictLessThan))
    return isinstance(size, sympy.Symbol) and bound == (1 if strict else 2)


def unmet_guards(ep: ExportedProgram, sizes: Sizes) -> list[str]:
    """What export assumed about sizes beyond their ranges, and would have to be checked when the model runs: equalities (divisibility
    among them), and orderings of polynomials (a branch that was taken: `if x.shape[0] > y.shape[0]`). Left out are inequations and
    orderings of quotients: export's questions about layouts leave those behind, and no operator's result depends on them; and "a size is
    greater than 1", export's 0/1 convention once more, which reading a saved program back writes down as a guard."""
    env = shape_env(ep)
    found: list[str] = []
    for guard in env.guards if env is not None else ():
        relation = guard.expr
        for _ in range(4):  # a replacement may hold replaced symbols in turn
            relation = relation.xreplace(dict(env.replacements))
        known = all(s.name in sizes.symbols for s in relation.free_symbols)
        if not relation.free_symbols or not known or isinstance(relation, sympy.Ne):
            continue
        if not isinstance(relation, sympy.Eq) and relation.atoms(sympy.Function):
            continue
        if _is_convention(relation):
            continue
        if not sizes.holds(relation):
            text = str(relation)
            for torch_name, size in sizes.symbols.items():
                text = re.sub(rf"\b{torch_name}\b", str(size), text)
            found.append(text)
    return list(dict.fromkeys(found))


def help_for_guards(ep: ExportedProgram, sizes: Sizes) -> str:
    """How to declare the sizes so that what export assumed always holds: for a multiple, by what factor."""
    env = shape_env(ep)
    factors: dict[str, int] = {}
    others: list[str] = []  # sizes of other assumptions
    for guard in env.guards if env is not None else ():
        relation = guard.expr.xreplace(dict(env.replacements))
        found = _needed_factor(relation)
        if sizes.holds(relation):
            continue
        if found is not None and found[0] in sizes.symbols:
            factors[found[0]] = math.lcm(factors.get(found[0], 1), found[1])
        else:
            others += sorted(str(sizes.symbols[s.name]) for s in relation.free_symbols if s.name in sizes.symbols)
    parts = []
    for torch_name, factor in factors.items():
        symbol = sizes.symbols[torch_name].as_sym
        if symbol is not None:
            top = symbol.hi // factor if isinstance(symbol.hi, int) and symbol.hi < UNBOUNDED else None
            bounds = f"min={max(1, -(-symbol.lo // factor))}" + (f", max={top}" if top else "")
            parts.append(f"make {symbol.name} a multiple of {factor}: write {factor}*Dim('{symbol.name}', {bounds}) where {symbol.name} stands")
    if parts:
        return "; ".join(parts)
    names = list(dict.fromkeys(others)) or ["size"]
    dims = ", ".join(f"Dim('{name}', min=..., max=...)" for name in names[:3])
    return f"declare ranges in which this always holds, as a larger min: {dims}; an example in contiguous layout may need none"


def _needed_factor(relation: sympy.Basic) -> tuple[str, int] | None:
    """Eq(Mod(k * s, m), 0) holds for every s that is a multiple of m / gcd(k, m): (s, that)."""
    if not isinstance(relation, sympy.Eq) or relation.args[1] != 0 or type(relation.args[0]).__name__ not in ("Mod", "PythonMod"):
        return None
    number, modulus = relation.args[0].args
    symbols = list(number.free_symbols)
    if len(symbols) != 1 or not isinstance(modulus, sympy.Integer):
        return None
    coefficient = number.coeff(symbols[0])
    if not isinstance(coefficient, sympy.Integer) or number != coefficient * symbols[0]:
        return None
    return symbols[0].name, int(modulus) // math.gcd(int(modulus), int(coefficient))
