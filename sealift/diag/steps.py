"""Steps: the one helper that a pipeline's every step goes through. It names, times, verifies and dumps a step's result, and can skip it.

s = Steps(options, verify={Graph: verify_graph, Loops: verify_loops})
g = s("import", from_export, program)
l = s("fuse", fuse_epilogues, s("lower", lower_to_loops, g))
s.times  ==>  [("import", 812.0), ("lower", 3.1), ("fuse", 1.4)]
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sealift.diag.errors import InternalError

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

log = logging.getLogger("sealift")


class StepOptions(Protocol):
    """The part of sealift.options.Options that steps look at."""

    @property
    def dump_dir(self) -> Path | None: ...
    @property
    def skip(self) -> frozenset[str]: ...
    @property
    def stop_after(self) -> str | None: ...


class StopAfter(Exception):
    """The step that options.stop_after names has run; `value` is its result."""

    def __init__(self, step: str, value: Any) -> None:
        super().__init__(f"stopped after {step}")
        self.step, self.value = step, value


class Steps:
    """`verify`: what checks a value of a type. `dumps`: what a dumped value of a type looks like, and the file's suffix."""

    def __init__(
        self,
        options: StepOptions,
        verify: Mapping[type, Callable[[Any], None]] | None = None,
        dumps: Mapping[type, tuple[str, Callable[[Any], str]]] | None = None,
    ) -> None:
        self.options = options
        self.verify = dict(verify or {})
        self.dumps = dict(dumps or {})
        self.times: list[tuple[str, float]] = []  # (name, milliseconds), in the order run
        self.last_text: dict[str, str] = {}  # by suffix, what was dumped last
        self.names: list[str] = []

    def __call__(self, name: str, fn: Callable[Concatenate[A, P], T], first: A, *args: P.args, **kwargs: P.kwargs) -> T:
        """fn(first, *args), timed. A skipped step gives `first` back: only a step that makes of a thing another of its kind can be."""
        self.names.append(name)
        if name in self.options.skip:
            log.info("%s: skipped", name)
            return first  # type: ignore[return-value]
        start = time.perf_counter()
        result = fn(first, *args, **kwargs)
        ms = (time.perf_counter() - start) * 1e3
        self.times.append((name, ms))
        changed = result is not first
        log.info("%s: %.1f ms%s", name, ms, "" if changed else ", no change")
        if changed:
            self.check(name, result)
            self.dump(name, result)
        if self.options.stop_after == name:
            raise StopAfter(name, result)
        return result

    def check(self, name: str, value: Any) -> None:
        verify = _for_type(self.verify, value)
        if verify is None:
            return
        start = time.perf_counter()
        try:
            verify(value)
        except InternalError as error:
            raise InternalError(f"after step {name}: {error}") from error
        log.debug("%s: verified in %.1f ms", name, (time.perf_counter() - start) * 1e3)

    def dump(self, name: str, value: Any) -> None:
        """NN_name.suffix in the dump directory, unless the text is the one dumped last."""
        if self.options.dump_dir is None:
            return
        entry = _for_type(self.dumps, value)
        if entry is None:
            return
        suffix, to_text = entry
        text = to_text(value)
        if self.last_text.get(suffix) == text:
            return
        self.last_text[suffix] = text
        self.options.dump_dir.mkdir(parents=True, exist_ok=True)
        (self.options.dump_dir / f"{len(self.names):02d}_{name}.{suffix}").write_text(text, encoding="utf-8")

    def check_names(self) -> None:
        """Ends a pipeline: a step to skip or to stop after that does not exist is the caller's mistake, not nothing."""
        unknown = [n for n in sorted(self.options.skip) if n not in self.names]
        if self.options.stop_after is not None and self.options.stop_after not in self.names:
            unknown.append(self.options.stop_after)
        if unknown:
            raise ValueError(f"no step called {', '.join(unknown)}; steps: {', '.join(self.names)}")

    def table(self) -> str:
        """The times, longest name wide, with their sum."""
        width = max((len(n) for n, _ in self.times), default=5)
        lines = [f"{n.ljust(width)} {ms:10.1f} ms" for n, ms in self.times]
        return "\n".join([*lines, f"{'total'.ljust(width)} {sum(ms for _, ms in self.times):10.1f} ms"])


def _for_type(entries: Mapping[type, Any], value: Any) -> Any:
    return next((entries[t] for t in type(value).__mro__ if t in entries), None)
