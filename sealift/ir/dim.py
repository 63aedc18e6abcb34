"""Sizes and indices: closed integer expressions over symbols with ranges.

A `Dim` is a polynomial with integer coefficients over atoms; an atom is a symbol or one of the four operations that a polynomial cannot
hold (`//`, `%`, `min`, `max`). The form is canonical, so equal polynomials are equal objects by `==`, and the same class serves
tensor sizes (symbols are the user's dimensions) and loop indices (symbols are axes).

    parse_dim("2*seq + 1"), (i0 * seq + i1) // seq  ==>  i0      where i1 is an axis of extent seq
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

UNBOUNDED = 2**40  # the upper bound of a size nobody bounded: more elements than a machine holds, far from int64's end


@dataclass(frozen=True)
class Sym:
    """A named integer in [lo, hi]. `hi` is an int for a size, or the Dim `extent - 1` for an axis whose extent is symbolic."""

    name: str
    lo: int = 0
    hi: int | Dim = UNBOUNDED

    @cached_property
    def _hash(self) -> int:
        return hash(self.name)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Apply:
    """A non-polynomial operation: fn is one of `//` (floor), `%` (sign of the divisor), `min`, `max`."""

    fn: str
    left: Dim
    right: Dim

    @cached_property
    def _hash(self) -> int:
        return hash((self.fn, self.left, self.right))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _text(self) -> str:
        if self.fn in ("min", "max"):
            return f"{self.fn}({self.left}, {self.right})"
        return f"({_factor_text(self.left)} {self.fn} {_factor_text(self.right)})"

    def __str__(self) -> str:
        return self._text


Atom = Sym | Apply
Monomial = tuple[Atom, ...]


def _atom_key(atom: Atom) -> tuple[int, str]:
    return (0, atom.name) if isinstance(atom, Sym) else (1, str(atom))


@dataclass(frozen=True)
class Dim:
    """sum of coefficient * product of atoms. Build with `dim()`, `sym()` and the operators, never directly."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    # ---- what it is ----

    @cached_property
    def is_const(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def value(self) -> int:
        """The integer, of a constant."""
        if not self.is_const:
            raise ValueError(f"{self} is not a constant")
        return self.terms[0][1] if self.terms else 0

    @property
    def as_sym(self) -> Sym | None:
        """The symbol, if the expression is one."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Sym):
                return monomial[0]
        return None

    @cached_property
    def symbols(self) -> frozenset[Sym]:
        found: set[Sym] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Sym):
                    found.add(atom)
                else:
                    found |= atom.left.symbols | atom.right.symbols
        return frozenset(found)

    # ---- arithmetic ----

    def __add__(self, other: Dim | int) -> Dim:
        return _from_pairs([*self.terms, *dim(other).terms])

    def __radd__(self, other: int) -> Dim:
        return self + other

    def __neg__(self) -> Dim:
        return Dim(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Dim | int) -> Dim:
        return self + (-dim(other))

    def __rsub__(self, other: int) -> Dim:
        return dim(other) - self

    def __mul__(self, other: Dim | int) -> Dim:
        right = dim(other)
        return _from_pairs([(tuple(sorted(a + b, key=_atom_key)), p * q) for a, p in self.terms for b, q in right.terms])

    def __rmul__(self, other: int) -> Dim:
        return self * other

    def __floordiv__(self, other: Dim | int) -> Dim:
        return _divide(self, dim(other))[0]

    def __mod__(self, other: Dim | int) -> Dim:
        return _divide(self, dim(other))[1]

    # ---- bounds ----

    @cached_property
    def lower(self) -> int:
        """A constant the expression is never below."""
        return _bound(self, want_upper=False)

    @cached_property
    def upper(self) -> int:
        """A constant the expression is never above."""
        return _bound(self, want_upper=True)

    # ---- use ----

    def substitute(self, mapping: Mapping[Sym, Dim]) -> Dim:
        if not mapping or self.symbols.isdisjoint(mapping):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = dim(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, mapping)
            total = total + product
        return total

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer for the given symbol values. KeyError names a symbol that has none."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= _evaluate_atom(atom, values)
            total += coefficient
        return total

    def linear_in(self, symbol: Sym) -> tuple[Dim, Dim] | None:
        """(stride, rest) with self == stride * symbol + rest and neither holding the symbol; None if it is not linear."""
        stride, rest = ZERO, ZERO
        for monomial, coefficient in self.terms:
            count = monomial.count(symbol)
            others = tuple(a for a in monomial if a != symbol)
            if any(isinstance(a, Apply) and symbol in (a.left.symbols | a.right.symbols) for a in others):
                return None
            if count == 0:
                rest = rest + Dim(((monomial, coefficient),))
            elif count == 1:
                stride = stride + Dim(((others, coefficient),))
            else:
                return None
        return stride, rest

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for i, (monomial, coefficient) in enumerate(self.terms):
            sign = "-" if coefficient < 0 else ("" if i == 0 else "+")
            magnitude = abs(coefficient)
            factors = [str(a) for a in monomial]
            if magnitude != 1 or not factors:
                factors.insert(0, str(magnitude))
            text += (f" {sign} " if i else sign) + "*".join(factors)
        return text

    def __repr__(self) -> str:
        return f"Dim({self})"


ZERO = Dim(())
ONE = Dim((((), 1),))


def dim(value: Dim | int | Sym) -> Dim:
    if isinstance(value, Dim):
        return value
    if isinstance(value, Sym):
        return Dim((((value,), 1),))
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a size is an int, a Sym or a Dim, not {type(value).__name__}")
    return Dim((((), value),)) if value else ZERO


def sym(name: str, lo: int = 0, hi: int | Dim = UNBOUNDED) -> Dim:
    return dim(Sym(name, lo, hi))


def dim_min(left: Dim | int, right: Dim | int) -> Dim:
    a, b = dim(left), dim(right)
    if is_at_most(a, b):
        return a
    if is_at_most(b, a):
        return b
    return _atom(Apply("min", *sorted((a, b), key=str)))


def dim_max(left: Dim | int, right: Dim | int) -> Dim:
    a, b = dim(left), dim(right)
    if is_at_most(a, b):
        return b
    if is_at_most(b, a):
        return a
    return _atom(Apply("max", *sorted((a, b), key=str)))


def product(dims: Iterable[Dim | int]) -> Dim:
    total = ONE
    for d in dims:
        total = total * d
    return total


def is_at_most(a: Dim, b: Dim) -> bool:
    """Provably a <= b for every value of the symbols."""
    return _is_non_negative(b - a)


def is_positive(a: Dim) -> bool:
    return _is_non_negative(a - 1)


def divide_exact(a: Dim, b: Dim) -> Dim | None:
    """a / b where every term of `a` divides by a single-term `b`, else None."""
    if a == b:
        return ONE
    quotient, rest = _split_by_divisor(a, b)
    return quotient if rest == ZERO and quotient is not None else None


# ---- canonical form ------------------------------------------------------------------------------------------------------------


def _atom(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, str]]]:
    return (-len(term[0]), [_atom_key(a) for a in term[0]])


def _from_pairs(pairs: Iterable[tuple[Monomial, int]]) -> Dim:
    merged: dict[Monomial, int] = {}
    for monomial, coefficient in pairs:
        merged[monomial] = merged.get(monomial, 0) + coefficient
    terms = {m: c for m, c in merged.items() if c}
    if any(isinstance(a, Apply) and a.fn == "%" for m in terms for a in m):
        rejoined = _rejoin_quotients(terms)
        if rejoined is not None:
            return rejoined
    return Dim(tuple(sorted(terms.items(), key=_term_key)))


def _rejoin_quotients(terms: dict[Monomial, int]) -> Dim | None:
    """c*q*(p // q) + c*(p % q)  ==>  c*p, the identity that makes a reshape of a reshape free. The quotient is looked for in the form that
    it is stored in: of (k // 4) % 3 as k // 12."""
    for monomial, coefficient in terms.items():
        for position, atom in enumerate(monomial):
            if not (isinstance(atom, Apply) and atom.fn == "%"):
                continue
            others = monomial[:position] + monomial[position + 1 :]
            factor = Dim(((others, coefficient),))
            for quotient, whole in _quotients(atom, terms):
                partner = dict((factor * quotient * atom.right).terms)
                if monomial not in partner and all(terms.get(m) == c for m, c in partner.items()):
                    rest = [(m, c) for m, c in terms.items() if m != monomial and m not in partner]
                    return _from_pairs([*rest, *(factor * whole).terms])
    return None


def _quotients(remainder: Apply, terms: Mapping[Monomial, int]) -> Iterator[tuple[Dim, Dim]]:
    """The pairs (p // q, p) whose p % q is stored as `remainder`: its own operands', and where q divides r those of (p % r) % q."""
    p, q = remainder.left, remainder.right
    yield p // q, p
    for atom in dict.fromkeys(a for monomial in terms for a in monomial):
        if isinstance(atom, Apply) and atom.fn == "//" and atom.right == q and q.is_const:
            inner = _as_remainder(atom.left)
            if inner is not None and inner.left == p and divide_exact(inner.right, q) is not None:
                yield _atom(atom), atom.left


def _as_remainder(d: Dim) -> Apply | None:
    if len(d.terms) != 1 or d.terms[0][1] != 1 or len(d.terms[0][0]) != 1:
        return None
    atom = d.terms[0][0][0]
    return atom if isinstance(atom, Apply) and atom.fn == "%" else None


def _split_by_divisor(a: Dim, b: Dim) -> tuple[Dim | None, Dim]:
    """(q, r) with a == q*b + r, q made of the terms that divide by the single-term b; q is None if b has several terms."""
    if len(b.terms) != 1:
        return None, a
    divisor, divisor_coefficient = b.terms[0]
    quotient: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in a.terms:
        remaining = list(monomial)
        try:
            for atom in divisor:
                remaining.remove(atom)
        except ValueError:
            rest.append((monomial, coefficient))
            continue
        whole, left = divmod(coefficient, divisor_coefficient)
        if whole:
            quotient.append((tuple(remaining), whole))
        if left:
            rest.append((monomial, left))
    return _from_pairs(quotient), _from_pairs(rest)


@lru_cache(maxsize=65536)
def _divide(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    if b.is_const and b.value == 0:
        raise ZeroDivisionError(f"{a} // 0")
    if a.is_const and b.is_const:
        return dim(a.value // b.value), dim(a.value % b.value)
    if b == ONE:
        return a, ZERO
    if a == b:
        return ONE, ZERO
    if a == ZERO:
        return ZERO, ZERO
    quotient, rest = _split_by_divisor(a, b)
    if quotient is not None and b.lower >= 0:  # a divisor that could be 0 is a size: with it at 0 nothing is iterated
        if rest == ZERO:
            return quotient, ZERO
        if _is_non_negative(rest) and is_positive(b - rest):
            return quotient, rest
        if quotient != ZERO:
            inner_quotient, inner_rest = _divide_reduced(rest, b)
            return quotient + inner_quotient, inner_rest
    return _divide_reduced(a, b)


def _divide_reduced(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Cancels a common constant factor of a and b, then leaves the quotient as an atom: (4*x + 2) // 8  ==>  (2*x + 1) // 4."""
    if b.is_const and b.value > 0 and _is_non_negative(a) and is_positive(b - a):
        return ZERO, a
    if b.is_const and b.value > 0 and len(a.terms) == 1 and len(a.terms[0][0]) == 1 and a.terms[0][1] == 1:
        inner = a.terms[0][0][0]
        if isinstance(inner, Apply) and inner.fn == "//" and inner.right.is_const and inner.right.value > 0:
            return inner.left // (inner.right * b), _atom(Apply("%", a, b))
        if isinstance(inner, Apply) and inner.fn == "%" and inner.right.is_const and inner.right.value % b.value == 0:
            return _atom(Apply("//", a, b)), inner.left % b
    return _atom(Apply("//", a, b)), _atom(Apply("%", a, b))


# ---- bounds --------------------------------------------------------------------------------------------------------------------


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Sym):
        return atom.lo, atom.hi if isinstance(atom.hi, int) else atom.hi.upper
    left_lo, left_hi, right_lo, right_hi = atom.left.lower, atom.left.upper, atom.right.lower, atom.right.upper
    if atom.fn == "min":
        return min(left_lo, right_lo), min(left_hi, right_hi)
    if atom.fn == "max":
        return max(left_lo, right_lo), max(left_hi, right_hi)
    if atom.fn == "%":
        return (0, right_hi - 1) if right_lo > 0 else (-UNBOUNDED, UNBOUNDED)
    if right_lo > 0:
        return (left_lo // right_hi if left_lo >= 0 else left_lo // right_lo), (left_hi // right_lo if left_hi >= 0 else left_hi // right_hi)
    return -UNBOUNDED, UNBOUNDED


def _bound(expression: Dim, want_upper: bool) -> int:
    total = 0
    for monomial, coefficient in expression.terms:
        lo, hi = 1, 1
        for atom in monomial:
            atom_lo, atom_hi = _atom_bounds(atom)
            corners = (lo * atom_lo, lo * atom_hi, hi * atom_lo, hi * atom_hi)
            lo, hi = min(corners), max(corners)
        total += coefficient * (hi if (coefficient > 0) == want_upper else lo)
    return total


def _is_non_negative(expression: Dim) -> bool:
    """First by constant bounds; then with each axis of symbolic extent at the end of its range that makes the expression smallest."""
    if expression.lower >= 0:
        return True
    current = expression
    for _ in range(8):  # each round removes one axis; loop nests are no deeper
        axis = next((s for s in sorted(current.symbols, key=str) if isinstance(s.hi, Dim)), None)
        if axis is None:
            return False
        split = current.linear_in(axis)
        if split is None:
            return False
        stride, rest = split
        if stride.lower >= 0:
            current = rest + stride * axis.lo
        elif stride.upper <= 0:
            current = rest + stride * dim(axis.hi)
        else:
            return False
        if current.lower >= 0:
            return True
    return False


# ---- substitution and evaluation -----------------------------------------------------------------------------------------------


def _substitute_atom(atom: Atom, mapping: Mapping[Sym, Dim]) -> Dim:
    if isinstance(atom, Sym):
        return mapping.get(atom, _atom(atom))
    return apply(atom.fn, atom.left.substitute(mapping), atom.right.substitute(mapping))


def apply(fn: str, left: Dim, right: Dim) -> Dim:
    match fn:
        case "//":
            return left // right
        case "%":
            return left % right
        case "min":
            return dim_min(left, right)
        case "max":
            return dim_max(left, right)
    raise ValueError(f"unknown size operation {fn!r}")


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Sym):
        return values[atom.name]
    left, right = atom.left.evaluate(values), atom.right.evaluate(values)
    match atom.fn:
        case "//":
            return left // right
        case "%":
            return left % right
        case "min":
            return min(left, right)
    return max(left, right)


# ---- text ----------------------------------------------------------------------------------------------------------------------


def _factor_text(expression: Dim) -> str:
    text = str(expression)
    return f"({text})" if " " in text or "*" in text or text.startswith("-") else text


_TOKEN = re.compile(r"\s*(//|[-+*%(),]|\d+|[A-Za-z_][A-Za-z0-9_.]*)")


def parse_dim(text: str, symbols: Mapping[str, Dim]) -> Dim:
    """The inverse of str(). ValueError with the position on anything else, or on a symbol that is not in `symbols`."""
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ValueError(f"size {text!r}: unexpected {stripped[position]!r} at column {position}")
        tokens.append(match.group(1))
        position = match.end()
    parser = _DimParser(tokens, symbols, text)
    result = parser.sum()
    if parser.peek() is not None:
        raise ValueError(f"size {text!r}: unexpected {parser.peek()!r}")
    return result


class _DimParser:
    """sum := ['-'] term (('+' | '-') term)*    term := factor (('*' | '//' | '%') factor)*    factor := int | name | call | '(' sum ')'"""

    def __init__(self, tokens: list[str], symbols: Mapping[str, Dim], text: str) -> None:
        self.tokens, self.symbols, self.text, self.at = tokens, symbols, text, 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            raise ValueError(f"size {self.text!r}: expected {expected or 'more'}, found {token or 'the end'}")
        self.at += 1
        return token

    def sum(self) -> Dim:
        negative = self.peek() == "-"
        if negative:
            self.take()
        total = -self.term() if negative else self.term()
        while self.peek() in ("+", "-"):
            operator = self.take()
            right = self.term()
            total = total + right if operator == "+" else total - right
        return total

    def term(self) -> Dim:
        total = self.factor()
        while self.peek() in ("*", "//", "%"):
            operator = self.take()
            right = self.factor()
            total = total * right if operator == "*" else apply(operator, total, right)
        return total

    def factor(self) -> Dim:
        token = self.take()
        if token == "(":
            inner = self.sum()
            self.take(")")
            return inner
        if token in ("min", "max"):
            self.take("(")
            left = self.sum()
            self.take(",")
            right = self.sum()
            self.take(")")
            return apply(token, left, right)
        if token.isdigit():
            return dim(int(token))
        if token in self.symbols:
            return self.symbols[token]
        raise ValueError(f"size {self.text!r}: unknown symbol {token!r}")
