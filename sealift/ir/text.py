"""What the two text forms share: names, sizes, types, arguments and locations, printed and read back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sealift.diag.loc import Loc, Place
from sealift.ir.dim import UNBOUNDED, Dim, Sym, dim, parse_dim
from sealift.ir.dtype import DType, parse_dtype

T = TypeVar("T")

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")
_PLAIN_PLACE = re.compile(r"[^\s;\"?]+")
_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORDS = {"true": True, "false": False, "none": None}
_DTYPES = {str(d) for d in DType}
_OPEN, _CLOSE = "([{", ")]}"


# ---- printing ------------------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def name_text(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def size_text(s: Sym) -> str:
    """batch: 1..1024, or batch: 0.. where nothing bounds it"""
    assert isinstance(s.hi, int)
    return f"{s.name}: {s.lo}..{'' if s.hi == UNBOUNDED else s.hi}"


def shape_text(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(str(d) for d in shape)}]"


def order_text(order: tuple[int, ...] | None) -> str:
    return "" if order is None else f" order({', '.join(map(str, order))})"


def number_text(number: bool | float) -> str:
    return str(number).lower() if isinstance(number, bool) else repr(number)


def arg_text(arg: Any, value_text: Callable[[Any], str | None] = lambda _: None) -> str:
    """Numbers, strings, dtypes, sizes, none, and lists of these in brackets; `value_text` spells what else there may be."""
    special = value_text(arg)
    if special is not None:
        return special
    if isinstance(arg, tuple):
        return f"[{', '.join(arg_text(a, value_text) for a in arg)}]"
    if isinstance(arg, Dim):
        text = str(arg)
        return f"dim({text})" if arg.is_const or text in _DTYPES or text in _WORDS or _FLOAT.fullmatch(text) else text
    if isinstance(arg, str):
        return quoted(arg)
    if isinstance(arg, DType):
        return str(arg)
    if arg is None:
        return "none"
    if isinstance(arg, (bool, int, float)):
        return number_text(arg)
    if isinstance(arg, complex):
        return f"complex({arg.real!r}, {arg.imag!r})"
    raise TypeError(f"no text for {arg!r}")


def place_text(p: Place) -> str:
    at = f"{p.path if _PLAIN_PLACE.fullmatch(p.path) else quoted(p.path)}:{p.line}" if p.path or p.line else "?"
    module = p.module if _PLAIN_PLACE.fullmatch(p.module) else quoted(p.module)
    return f"{at} {module}" if p.module else at


def loc_text(loc: Loc) -> str:
    return "; ".join(place_text(p) for p in loc.places)


def with_loc(line: str, loc: Loc, column: int) -> str:
    return f"{line.ljust(column)}  // {loc_text(loc)}" if loc else line


def source_lines(locs: Iterable[Loc]) -> list[str]:
    """The users' lines, once each: they stand at the end so that nodes stay short."""
    found: dict[tuple[str, int], str] = {}
    for loc in locs:
        for p in loc.places:
            if p.code:
                found.setdefault((p.path, p.line), p.code)
    return [f"source {place_text(Place(path, line))} {quoted(code)}" for (path, line), code in sorted(found.items())]


# ---- reading -------------------------------------------------------------------------------------------------------------------


class Cursor:
    """A position in a text. Blanks are skipped before everything read; every error names the line."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, expected: str) -> ValueError:
        line = self.text.count("\n", 0, self.at) + 1
        start = self.text.rfind("\n", 0, self.at) + 1
        end = self.text.find("\n", self.at)
        content = self.text[start : end if end >= 0 else len(self.text)]
        return ValueError(f"line {line}, column {self.at - start + 1}: expected {expected}\n  {content}\n  {' ' * (self.at - start)}^")

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self, token: str) -> bool:
        self.skip()
        if not self.text.startswith(token, self.at):
            return False
        end = self.at + len(token)
        is_word = token[-1].isalnum() or token[-1] == "_"
        return not (is_word and end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"))

    def accept(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(repr(token))

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.fail(what)
        self.at = found.end()
        return found.group(0)

    def done(self) -> bool:
        self.skip()
        return self.at >= len(self.text)

    def until(self, stops: Sequence[str]) -> str:
        """The text up to one of `stops` outside brackets and quotes, or to the end of the line."""
        self.skip()
        start, depth = self.at, 0
        while self.at < len(self.text) and self.text[self.at] != "\n":
            character = self.text[self.at]
            if depth == 0 and any(self.text.startswith(s, self.at) for s in stops):
                break
            if character == '"':
                self.string()
                continue
            depth += (character in _OPEN) - (character in _CLOSE)
            self.at += 1
        return self.text[start : self.at].strip()

    def string(self) -> str:
        return str(json.loads(self.match(_QUOTED, "a string")))

    def name(self) -> str:
        self.skip()
        return self.string() if self.text.startswith('"', self.at) else self.match(_PLAIN_NAME, "a name")

    def integer(self) -> int:
        return int(self.match(_INT, "an integer"))

    def list_of(self, item: Callable[[], T], close: str, separator: str = ",") -> tuple[T, ...]:
        """Items up to `close`, which is read, too."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.expect(separator)
            items.append(item())
        return tuple(items)


def read_size(c: Cursor) -> Sym:
    name = c.name()
    c.expect(":")
    lo = c.integer()
    c.expect("..")
    c_at = c.at
    hi = c.integer() if c_at < len(c.text) and (c.text[c_at].isdigit() or c.text[c_at] == "-") else UNBOUNDED
    return Sym(name, lo, hi)


def read_dim(c: Cursor, symbols: Mapping[str, Dim], stops: Sequence[str]) -> Dim:
    start = c.at
    text = c.until(stops)
    try:
        return parse_dim(text, symbols)
    except ValueError as error:
        c.at = start
        c.skip()
        raise c.fail(f"a size ({error})") from None


def read_type(c: Cursor, symbols: Mapping[str, Dim]) -> tuple[DType, tuple[Dim, ...], tuple[int, ...] | None]:
    dtype = read_dtype(c)
    c.expect("[")
    shape = c.list_of(lambda: read_dim(c, symbols, (",", "]")), "]")
    order = None
    if c.accept("order"):
        c.expect("(")
        order = c.list_of(c.integer, ")")
    return dtype, shape, order


def read_dtype(c: Cursor) -> DType:
    text = c.match(_PLAIN_NAME, "a dtype")
    if text not in _DTYPES:
        c.at -= len(text)
        raise c.fail("a dtype")
    return parse_dtype(text)


def read_number(c: Cursor, stops: Sequence[str]) -> bool | int | float:
    text = c.until(stops)
    if text in ("true", "false"):
        return text == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    raise c.fail(f"a number, not {text!r}")


def _float(text: str) -> float:
    return math.nan if text == "nan" else float(text)


def read_arg(c: Cursor, symbols: Mapping[str, Dim], read_value: Callable[[], Any], stops: Sequence[str] = (",", ")", "]")) -> Any:
    c.skip()
    if c.peek("%"):
        return read_value()
    if c.accept("["):
        return c.list_of(lambda: read_arg(c, symbols, read_value), "]")
    if c.peek('"'):
        return c.string()
    start = c.at
    text = c.until(stops)
    if text in _WORDS:
        return _WORDS[text]
    if text in _DTYPES:
        return parse_dtype(text)
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    if text.startswith("complex(") and text.endswith(")"):
        real, imag = (_float(part.strip()) for part in text[8:-1].split(","))
        return complex(real, imag)
    if text.startswith("dim("):
        text = text[4:-1]
    try:
        return dim(parse_dim(text, symbols))
    except ValueError as error:
        c.at = start
        raise c.fail(f"an argument ({error})") from None


def read_loc(c: Cursor) -> Loc:
    """// model.py:31 blocks.0.proj; model.py:32, if it stands here on the line; code comes with the sources at the end."""
    line_end = c.text.find("\n", c.at)
    rest = c.text[c.at : line_end if line_end >= 0 else len(c.text)]
    if not rest.lstrip().startswith("//"):
        return Loc()
    c.expect("//")
    places: list[Place] = []
    while True:
        path, line = read_place(c)
        end = c.text.find("\n", c.at)
        left = c.text[c.at : end if end >= 0 else len(c.text)].lstrip(" ")
        module = ""
        if left and not left.startswith(";"):
            module = _read_place_part(c)
        places.append(Place(path, line, module))
        end = c.text.find("\n", c.at)
        if not c.text[c.at : end if end >= 0 else len(c.text)].lstrip(" ").startswith(";"):
            return Loc(tuple(places))
        c.expect(";")


_PLACE_AT = re.compile(r"[^\s;\"?]+(?=:\d+)")


def read_place(c: Cursor) -> tuple[str, int]:
    c.skip()
    if c.accept("?"):
        return "", 0
    path = c.string() if c.peek('"') else c.match(_PLACE_AT, "a file and line")
    c.expect(":")
    return path, c.integer()


def _read_place_part(c: Cursor) -> str:
    return c.string() if c.peek('"') else c.match(_PLAIN_PLACE, "a module path")


def read_sources(c: Cursor) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    while c.accept("source"):
        at = read_place(c)
        found[at] = c.string()
    return found


def with_sources(loc: Loc, sources: Mapping[tuple[str, int], str]) -> Loc:
    return Loc(tuple(Place(p.path, p.line, p.module, sources.get((p.path, p.line), "")) for p in loc.places))
