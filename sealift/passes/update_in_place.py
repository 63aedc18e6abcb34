"""Loops -> Loops: a state (or an input that the model changes) is written where it lies, and only where it changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from sealift.ir.loop.expr import Buffer, Load
from sealift.ir.loop.operands import is_identity
from sealift.ir.loop.rewrite import replace_buffers, stage_loads, used_buffers
from sealift.ir.loop.types import Axis, Kernel, Loops, Map, Stage, outputs_of
from sealift.passes.inline_producers import inline_load


def update_in_place(loops: Loops) -> Loops:
    """u = s; u[at] = x; y = f(u); s = u           ==>   s[at] = x; y = f(s)
    w = s[l]; w[at] = x; u = s; u[l] = w; s = u    ==>   s[l, at] = x
    u = s * 0.9 + x; s = u                         ==>   s = s * 0.9 + x

    Runs on what lower_to_loops gives: one stage a kernel, every other buffer with one value. Refuses, and leaves the whole copy, where
    the old value is read after the first write or by what writes, and where what is written is an output too.
    """
    folded = _fold_regions(loops)
    return _Renamer(folded).run() if loops.state_updates else folded


@dataclass(frozen=True)
class _Copied:
    """A buffer that starts as a copy, and is then written in places: kernels by position."""

    copy: int
    base: Load  # what is copied, in the copy's axes
    writes: tuple[int, ...]


class Values:
    """Who writes and who reads each buffer, by kernel position."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.stages: list[Stage] = [k.stages[0] for k in kernels]
        self.writers: dict[str, list[int]] = defaultdict(list)
        self.readers: dict[str, list[int]] = defaultdict(list)
        for position, stage in enumerate(self.stages):
            for b in outputs_of(stage):
                self.writers[b.name].append(position)
            for name in {load.buffer.name for load in stage_loads(stage)}:
                self.readers[name].append(position)

    def seen_through(self, load: Load) -> Load:
        """The load past temporaries that are nothing but views."""
        while load.buffer.kind == "temp" and len(self.writers[load.buffer.name]) == 1:
            view = self.stages[self.writers[load.buffer.name][0]]
            if not _is_copy(view):
                break
            inner = inline_load(load, view)
            if not isinstance(inner, Load) or inner.guard:
                break
            load = inner
        return load

    def copied(self, name: str) -> _Copied | None:
        positions = self.writers[name]
        stage = self.stages[positions[0]] if positions else None
        if stage is None or not _is_copy(stage):
            return None
        if not all(isinstance(self.stages[p], Map) for p in positions):
            return None
        assert isinstance(stage.value, Load)
        return _Copied(positions[0], self.seen_through(stage.value), tuple(positions[1:]))


def _is_copy(stage: Stage) -> TypeGuard[Map]:
    return (
        isinstance(stage, Map)
        and stage.combine is None
        and is_identity(stage.index, stage.axes)
        and isinstance(stage.value, Load)
        and not stage.value.guard
    )


# ---- parts of a buffer -----------------------------------------------------------------------------------------------------------


def _fold_regions(loops: Loops) -> Loops:
    """w = u0[r]; w[at] = x; u = u0; u[r] = w   ==>   u = u0; u[r[at]] = x: what eager does when it writes through a view."""
    kernels = list(loops.kernels)
    while True:
        folded = _fold_one(kernels)
        if folded is None:
            break
        kernels = folded
    if len(kernels) == len(loops.kernels) and all(a is b for a, b in zip(kernels, loops.kernels)):
        return loops
    return replace(loops, kernels=tuple(kernels), buffers=used_buffers(loops, kernels))


def _fold_one(kernels: list[Kernel]) -> list[Kernel] | None:
    values = Values(kernels)
    for position, stage in enumerate(values.stages):
        if not isinstance(stage, Map) or stage.combine is not None or not isinstance(stage.value, Load):
            continue
        whole, part = values.copied(stage.out.name), stage.value
        if whole is None or position not in whole.writes:
            continue
        region = values.copied(part.buffer.name) if part.buffer.kind == "temp" and is_identity(part.index, stage.axes) else None
        if region is None or not region.writes or values.readers[part.buffer.name] != [position]:
            continue
        if part.buffer.shape != tuple(a.extent for a in stage.axes):
            continue
        written = Load(stage.out, stage.index)
        started, copy = values.stages[whole.copy], values.stages[region.copy]
        assert isinstance(started, Map) and isinstance(copy, Map)
        was = inline_load(written, replace(started, value=whole.base))
        renamed = inline_load(Load(part.buffer, tuple(a.dim for a in stage.axes)), replace(copy, value=region.base))
        if was != renamed:
            continue  # the part was read elsewhere than where it is put
        place = replace(stage, out=part.buffer, index=tuple(a.dim for a in stage.axes), value=written)
        moved: list[Kernel] = []
        for at in region.writes:
            write = values.stages[at]
            assert isinstance(write, Map)
            target = inline_load(Load(part.buffer, write.index), place)
            if not isinstance(target, Load):
                break
            moved.append(replace(kernels[at], stages=(replace(write, out=stage.out, index=target.index),)))
        if len(moved) != len(region.writes):
            continue
        gone = {region.copy, *region.writes}
        return [k for p, old in enumerate(kernels) if p not in gone for k in (moved if p == position else [old])]
    return None


# ---- whole updates ---------------------------------------------------------------------------------------------------------------


class _Renamer:
    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.values = Values(loops.kernels)
        self.renamed: dict[str, Buffer] = {}
        self.dropped: set[int] = set()

    def run(self) -> Loops:
        for state, _ in self.loops.state_updates:
            self.try_state(state)
        if not self.dropped:
            return self.loops
        kernels = [
            replace(k, stages=tuple(replace_buffers(s, self.renamed) for s in k.stages))
            for position, k in enumerate(self.loops.kernels)
            if position not in self.dropped
        ]
        return replace(self.loops, kernels=tuple(kernels), buffers=used_buffers(self.loops, kernels))

    def try_state(self, state: Buffer) -> None:
        """Takes the state's versions, last to first; all of them become the state itself, or none."""
        if len(self.values.writers[state.name]) != 1:
            return
        (keep,) = self.values.writers[state.name]
        last = self.values.stages[keep]
        if not _is_copy(last):
            return
        assert isinstance(last.value, Load)
        if not is_identity(last.value.index, last.axes):
            return
        dropped, names = {keep}, []
        version, next_write = last.value.buffer, len(self.values.stages)  # the first write of the version after this one
        while version.name != state.name:
            if not self.fits(version, state):
                return
            if any(p >= next_write and p not in dropped for p in self.values.readers[version.name]):
                return
            link = self.values.copied(version.name)
            previous = link.base.buffer if link is not None else state
            if link is not None and is_identity(link.base.index, self.axes_of(link.copy)) and self.fits(previous, state, given=True):
                writes = link.writes
                dropped.add(link.copy)
                if any(self.reads(p, {version.name, previous.name, state.name}) for p in writes):
                    return
            else:  # a value of its own, which may be made of the old one element by element
                writes = tuple(self.values.writers[version.name])
                previous = state
                if not all(self.reads_in_place(p, state) for p in writes) or (len(writes) > 1 and any(self.reads(p, {state.name}) for p in writes)):
                    return
                next_write = min(next_write, writes[0])
                names.append(version.name)
                version = state
                break
            next_write = min((next_write, *writes))
            names.append(version.name)
            version = previous
        if any(p >= next_write and p not in dropped and not self.writes_whole(p, names) for p in self.values.readers[state.name]):
            return
        self.dropped |= dropped
        self.renamed.update({name: state for name in names})

    def fits(self, b: Buffer, state: Buffer, given: bool = False) -> bool:
        """Whether the buffer may lie where the state does."""
        kinds = ("temp", state.kind) if given else ("temp",)
        if b.kind == state.kind and b.name != state.name:
            return False
        return b.kind in kinds and b.name not in self.renamed and (b.shape, b.dtype, b.order) == (state.shape, state.dtype, state.order)

    def axes_of(self, position: int) -> tuple[Axis, ...]:
        stage = self.values.stages[position]
        assert isinstance(stage, Map)
        return stage.axes

    def reads(self, position: int, names: set[str]) -> bool:
        return any(load.buffer.name in names for load in stage_loads(self.values.stages[position]))

    def reads_in_place(self, position: int, state: Buffer) -> bool:
        """Whether the stage reads the state where it writes, if at all."""
        stage = self.values.stages[position]
        loads = [load for load in stage_loads(stage) if load.buffer.name == state.name]
        if not loads:
            return True
        return (
            isinstance(stage, Map)
            and stage.combine is None
            and is_identity(stage.index, stage.axes)
            and all(is_identity(load.index, stage.axes) for load in loads)
        )

    def writes_whole(self, position: int, names: list[str]) -> bool:
        """A version made of the old value element by element: reads_in_place() has looked at it."""
        return any(b.name in names for b in outputs_of(self.values.stages[position]))
