"""Reading at gathered positions, and joining. A gather is a view whose index entries are values; every value is checked as eager does."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType, result_type
from sealift.ir.loop.expr import Expr
from sealift.ops.arguments import refuse
from sealift.ops.lang import (
    Builder,
    IndexEntry,
    S,
    Tensor,
    broadcast_index,
    broadcast_shapes,
    checked,
    normalize_dim,
    operand_kind,
)
from sealift.ops.table import op
from sealift.ops.views import reshaped, unsqueezed


@op("aten.embedding.default", samples="nn.functional.embedding")
def embedding(b: Builder, weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Tensor:
    """weight [n, *], indices [*i] -> [*i, *]. padding_idx says which row gets no gradient, so nothing here."""
    rank = indices.rank

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        return weight.at((checked(S(indices.at(index[:rank])), weight.shape[0], negative=False), *index[rank:]))

    return Tensor(weight.dtype, (*indices.shape, *weight.shape[1:]), element)


@op("aten.index_select.default", samples="index_select")
def index_select(b: Builder, self: Tensor, dim: int, index: Tensor) -> Tensor:
    along = normalize_dim(dim, self.rank)
    flat = reshaped(index, (index.numel,))
    if self.rank == 0:
        return Tensor(self.dtype, (), lambda i: self.at(()))

    def element(i: tuple[IndexEntry, ...]) -> Expr:
        at = checked(S(flat.at((i[along],))), self.shape[along], negative=False)
        return self.at((*i[:along], at, *i[along + 1 :]))

    return Tensor(self.dtype, (*self.shape[:along], flat.shape[0], *self.shape[along + 1 :]), element)


@op("aten.gather.default", samples="gather")
def gather(b: Builder, self: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i] = self[i with index[i] at dim], in the shape of index."""
    along = normalize_dim(dim, self.rank)
    if self.rank == 0:
        return reshaped(self, index.shape) if index.rank else self
    if index.rank not in (0, self.rank):  # eager takes an index of any rank that has no element
        return b.full(index.shape, 0, self.dtype)
    if index.rank == 0:
        single: Tensor = gather(b, self, dim, reshaped(index, (1,)))
        return reshaped(single, ())

    def element(i: tuple[IndexEntry, ...]) -> Expr:
        at = checked(S(index.at(i)), self.shape[along], negative=False)
        return self.at((*i[:along], at, *i[along + 1 :]))

    return Tensor(self.dtype, index.shape, element)


class Indexed:
    """self[indices] as eager understands it: where the index tensors' broadcast shape goes, and what an output index reads."""

    def __init__(self, self_shape: Sequence[Dim], indices: Sequence[Tensor | None]) -> None:
        for t in indices:
            if t is not None and t.dtype in (DType.BOOL, DType.U8):
                refuse("indexing by a bool mask: the size of the result depends on values")
        self.source_shape = tuple(self_shape)
        self.tensors: list[Tensor | None] = [*indices, *[None] * (len(self_shape) - len(indices))]
        used = [d for d, t in enumerate(self.tensors) if t is not None]
        self.gathered = broadcast_shapes([t.shape for t in self.tensors if t is not None])
        adjacent = bool(used) and used == list(range(used[0], used[-1] + 1))
        self.at = used[0] if adjacent else 0  # where the gathered dimensions stand in the result
        self.kept = [d for d, t in enumerate(self.tensors) if t is None]
        rest = [self.source_shape[d] for d in self.kept]
        self.shape = (*rest[: self.at], *self.gathered, *rest[self.at :])

    def source(self, index: Sequence[IndexEntry]) -> list[IndexEntry]:
        """The index into self that the result's `index` reads or writes."""
        end = self.at + len(self.gathered)
        inside = index[self.at : end]
        rest = iter((*index[: self.at], *index[end:]))
        entries: list[IndexEntry] = []
        for size, t in zip(self.source_shape, self.tensors):
            entries.append(next(rest) if t is None else checked(S(t.at(broadcast_index(inside, t.shape))), size))
        return entries


@op("aten.index.Tensor")
def index(b: Builder, self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    how = Indexed(self.shape, indices)
    return Tensor(self.dtype, how.shape, lambda i: self.at(how.source(i)))


@op("aten.take.default", samples="take")
def take(b: Builder, self: Tensor, index: Tensor) -> Tensor:
    flat = reshaped(self, (self.numel,))
    return Tensor(self.dtype, index.shape, lambda i: flat.at((checked(S(index.at(i)), flat.shape[0]),)))


@op("aten.cat.default", samples="cat")
@op("aten.concat.default", samples="cat")
@op("aten.concatenate.default", samples="cat")
def cat(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """An empty tensor of rank 1 joins with anything."""
    result = result_type([operand_kind(t) for t in tensors])
    parts = [t for t in tensors if not _is_skipped(t)] or [tensors[0]]
    along = normalize_dim(dim, parts[0].rank)
    if len(parts) == 1:
        return b.cast(parts[0], result)
    return b.concat([b.cast(t, result) for t in parts], along)


def _is_skipped(t: Tensor) -> bool:
    return t.shape == (dim(0),)


@op("aten.stack.default", samples="stack")
def stack(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    along = normalize_dim(dim, tensors[0].rank + 1)
    result = result_type([operand_kind(t) for t in tensors])
    return b.concat([unsqueezed(b.cast(t, result), along) for t in tensors], along)


@op("aten.hstack.default", samples="hstack")
def hstack(b: Builder, tensors: Sequence[Tensor]) -> Tensor:
    lined = [reshaped(t, (1,)) if t.rank == 0 else t for t in tensors]
    result: Tensor = cat(b, lined, 0 if lined[0].rank == 1 else 1)
    return result


@op("aten.vstack.default", samples="vstack")
def vstack(b: Builder, tensors: Sequence[Tensor]) -> Tensor:
    result: Tensor = cat(b, [reshaped(t, (1, t.numel)) if t.rank < 2 else t for t in tensors], 0)
    return result


@op("aten.meshgrid.default", samples="meshgrid")
@op("aten.meshgrid.indexing", samples="meshgrid")
def meshgrid(b: Builder, tensors: Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Tensor k along dimension k of the grid; "xy" swaps the first two dimensions."""
    lines = [reshaped(t, (t.numel,)) for t in tensors]
    places = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        places[:2] = 1, 0
    sizes = [dim(0)] * len(lines)
    for place, line in zip(places, lines):
        sizes[place] = line.shape[0]
    return tuple(Tensor(line.dtype, tuple(sizes), lambda i, line=line, place=place: line.at((i[place],))) for place, line in zip(places, lines))  # type: ignore[misc]


@op("aten.roll.default", samples="roll")
def roll(b: Builder, self: Tensor, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> Tensor:
    """out[i] = self[(i - shift) mod size]"""
    amounts = list(shifts) if isinstance(shifts, Sequence) else [shifts]
    along = list(dims) if isinstance(dims, Sequence) else [dims]
    if not along:
        flat: Tensor = roll(b, reshaped(self, (self.numel,)), amounts, (0,))
        return reshaped(flat, self.shape)
    turned = self
    for amount, d in zip(amounts, along):
        turned = _rolled(turned, amount, normalize_dim(d, self.rank))
    return turned


def _rolled(t: Tensor, amount: int, along: int) -> Tensor:
    size = t.shape[along]
    if size == dim(0):
        return t

    def element(i: tuple[IndexEntry, ...]) -> Expr:
        at = i[along]
        moved: IndexEntry = (at - amount) % size if isinstance(at, Dim) else checked(S(at) - amount, size)
        if not isinstance(at, Dim):
            refuse("roll read at gathered positions")
        return t.at((*i[:along], moved, *i[along + 1 :]))

    return Tensor(t.dtype, t.shape, element)
