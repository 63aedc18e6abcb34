"""Text in, text out: a pass on loops that are written down."""

from __future__ import annotations

from collections.abc import Callable

from sealift.ir.loop.text import parse_loops
from sealift.ir.loop.types import Loops
from sealift.ir.loop.verify import verify


def read(text: str) -> Loops:
    """Loops from an indented text; its first line may be a header without outputs' kernels. Verified."""
    lines = [line for line in text.splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    loops = parse_loops("\n".join(line[indent:] for line in lines) + "\n")
    verify(loops)
    return loops


def kernels(loops: Loops) -> str:
    """The kernels' lines, without the declarations."""
    text = str(loops)
    start = text.find("kernel ")
    end = text.find("\nsource ")
    return text[start : end if end >= 0 else len(text)].strip() if start >= 0 else ""


def buffers(loops: Loops) -> str:
    """The declarations' lines."""
    text = str(loops)
    start = text.find("kernel ")
    return text[: start if start >= 0 else len(text)].strip()


def unchanged(fn: Callable[[Loops], Loops], text: str) -> None:
    """The pass gives the very same object back."""
    loops = read(text)
    assert fn(loops) is loops


def changed(fn: Callable[[Loops], Loops], text: str) -> Loops:
    """The pass's result: verified, printed and read back, and left alone by a second run of the pass."""
    before = read(text)
    after = fn(before)
    assert after is not before
    verify(after)
    assert parse_loops(str(after)) == after
    assert fn(after) is after, "a second run changes it again"
    return after
