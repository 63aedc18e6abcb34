"""Writing at gathered positions: a copy of the base, then one write after another in row-major order, so that the last of equal
positions wins."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.arguments import Size, refuse, slice_range
from sealift.ops.guards import highest, lowest
from sealift.ops.indexing import Indexed
from sealift.ops.lang import Builder, IndexEntry, Number, S, Tensor, as_entry, broadcast_shapes, checked, normalize_dim, prim, select, shifted
from sealift.ops.pairs import constant
from sealift.ops.table import op
from sealift.ops.views import diagonal, expanded, narrowed, reshaped

Value = Tensor | Number | Dim


def _written(b: Builder, self: Tensor, dim: int, index: Tensor, value: Value, combine: Combine | None = None) -> Tensor:
    """out[i with index[i] at dim] = value[i] for every i of index's shape, combined with what is there if `combine` is given."""
    if self.rank == 0:
        flat = reshaped(value, (-1,)) if isinstance(value, Tensor) else value
        return reshaped(_written(b, reshaped(self, (1,)), 0, reshaped(index, (index.numel,)), flat, combine), ())
    if index.rank != self.rank:  # a 0-d index into one dimension, or an empty index of any rank
        if any(s.is_const and s.value == 0 for s in index.shape):
            return self
        index = reshaped(index, (1,) * self.rank)
        value = reshaped(value, (1,) * self.rank) if isinstance(value, Tensor) and value.rank == 0 else value
    along = normalize_dim(dim, self.rank)
    source = value if isinstance(value, Tensor) else b.scalar(value, self.dtype)

    def place(at: tuple[Dim, ...]) -> list[IndexEntry]:
        entry = checked(S(index.at(at)), self.shape[along], negative=False)
        return [entry if d == along else i for d, i in enumerate(at)]

    def element(at: tuple[Dim, ...]) -> S:
        return S(source.at(at if source.rank else ())).cast(self.dtype)

    return b.scatter(self, index.shape, place, element, combine)


@op("aten.scatter.src", samples="scatter")
def scatter_src(b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _written(b, self, dim, index, src)


@op("aten.scatter.value", samples="scatter")
def scatter_value(b: Builder, self: Tensor, dim: int, index: Tensor, value: Number | Dim) -> Tensor:
    return _written(b, self, dim, index, value)


@op("aten.scatter_add.default", samples="scatter_add", rtol=1e-6, atol=1e-6)
def scatter_add(b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _written(b, self, dim, index, src, Combine.ANY if self.dtype is DType.BOOL else Combine.SUM)


_COMBINES = {"sum": Combine.SUM, "mean": Combine.SUM, "prod": Combine.PROD, "amax": Combine.MAX, "amin": Combine.MIN}
_BOOL_COMBINES = {"sum": Combine.ANY, "prod": Combine.ALL, "amax": Combine.ANY, "amin": Combine.ALL}


@op("aten.scatter_reduce.two", samples="scatter_reduce", rtol=1e-5, atol=1e-6)
def scatter_reduce(b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    """Without self, the positions that are written first become what the reduction starts from. Half types are reduced in f32."""
    compute = self.dtype.compute
    if self.dtype is DType.BOOL and reduce == "mean":
        refuse("scatter_reduce to the mean of bool")
    combine = (_BOOL_COMBINES if self.dtype is DType.BOOL else _COMBINES)[reduce]
    starts = {Combine.SUM: 0, Combine.PROD: 1, Combine.ANY: 0, Combine.ALL: 1, Combine.MAX: lowest(compute), Combine.MIN: highest(compute)}
    base = b.cast(self, compute)
    start = base if include_self else _written(b, base, dim, index, starts[combine])
    reduced = _written(b, start, dim, index, b.cast(src, compute), combine)
    if reduce == "mean":
        ones = b.full(self.shape, 1, DType.I64)
        counts = _written(b, ones, dim, index, 1, Combine.SUM)
        if not include_self:
            counts = b.pointwise(lambda c: select(c > 1, c - 1, 1), counts)
        floor = compute.is_int
        reduced = b.pointwise(lambda x, c: prim(Prim.FLOOR_DIV, x, c.cast(compute)) if floor else x / c.cast(compute), reduced, counts)
    return b.cast(reduced, self.dtype)


@op("aten.index_put.default", samples="index_put", rtol=1e-6, atol=1e-6)
def index_put(b: Builder, self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    masked = _masked_put(b, self, indices, values, accumulate)
    if masked is not None:
        return masked
    how = Indexed(self.shape, indices)
    source = expanded(b.cast(values, self.dtype), how.shape)
    combine = (Combine.ANY if self.dtype is DType.BOOL else Combine.SUM) if accumulate else None
    return b.scatter(self, how.shape, how.source, lambda at: S(source.at(at)), combine)


@op("aten.index_copy.default", samples="index_copy")
def index_copy(b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """self[..., index, ...] = source"""
    if self.rank == 0:
        return reshaped(source, ())
    along = normalize_dim(dim, self.rank)
    values = reshaped(source, (1,) * self.rank) if source.rank == 0 else source
    copied: Tensor = index_put(b, self, [*[None] * along, reshaped(index, (index.numel,))], values)
    return copied


def _masked_put(b: Builder, self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor | None:
    """self[mask] = one value: a choice, whose shape no value decides."""
    given = [(d, t) for d, t in enumerate(indices) if t is not None]
    if len(given) != 1 or given[0][1].dtype is not DType.BOOL or values.numel != dim(1) or accumulate:
        return None
    first, mask = given[0]
    one = reshaped(b.cast(values, self.dtype), ())

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        return select(S(mask.at(index[first : first + mask.rank])), S(one.at(())), S(self.at(index))).e

    return Tensor(self.dtype, self.shape, element)


@op("aten.index_add.default", samples="index_add", rtol=1e-6, atol=1e-6)
def index_add(b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number = 1) -> Tensor:
    if self.rank == 0:
        flat = index_add(b, reshaped(self, (1,)), 0, reshaped(index, (-1,)), reshaped(source, (-1,)), alpha)
        return reshaped(flat, ())
    along = normalize_dim(dim, self.rank)
    flat_index = reshaped(index, (index.numel,))
    combine = Combine.ANY if self.dtype is DType.BOOL else Combine.SUM

    def place(at: tuple[Dim, ...]) -> list[IndexEntry]:
        return [checked(S(flat_index.at((i,))), self.shape[along], negative=False) if d == along else i for d, i in enumerate(at)]

    def element(at: tuple[Dim, ...]) -> S:
        value = S(source.at(at))
        return value if alpha == 1 or self.dtype is DType.BOOL else value * alpha

    return b.scatter(self, source.shape, place, element, combine)


@op("aten.select_scatter.default", samples="select_scatter")
def select_scatter(b: Builder, self: Tensor, src: Tensor, dim: int, index: Size) -> Tensor:
    along = normalize_dim(dim, self.rank)
    position = _as_position(index, self.shape[along])
    source = expanded(src, (*self.shape[:along], *self.shape[along + 1 :]))
    return b.scatter(self, source.shape, lambda at: (*at[:along], position, *at[along:]), lambda at: S(source.at(at)).cast(self.dtype))


def _as_position(index: Size, size: Dim) -> Dim:
    position = dim(index)
    if position.upper < 0:
        return position + size
    if position.lower < 0:
        refuse(f"select at {position}, which may be negative or not, depending on sizes")
    return position


@op("aten.slice_scatter.default", samples="slice_scatter")
def slice_scatter(b: Builder, self: Tensor, src: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1) -> Tensor:
    along = normalize_dim(dim, self.rank)
    first, every, count = slice_range(start, end, step, self.shape[along])
    source = expanded(src, (*self.shape[:along], count, *self.shape[along + 1 :]))
    return b.scatter(
        self,
        source.shape,
        lambda at: (*at[:along], shifted(at[along], first, every), *at[along + 1 :]),
        lambda at: S(source.at(at)).cast(self.dtype),
    )


@op("aten.diagonal_scatter.default", samples="diagonal_scatter")
def diagonal_scatter(b: Builder, self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    row, column = normalize_dim(dim1, self.rank), normalize_dim(dim2, self.rank)
    source = expanded(src, diagonal(b, self, offset, dim1, dim2).shape)

    def place(at: tuple[Dim, ...]) -> list[IndexEntry]:
        lead, along = iter(at[:-1]), at[-1]
        down = checked(S(as_entry(along + max(-offset, 0))), self.shape[row])  # an element's row is no loop's row: two of its places move at once
        moved: dict[int, IndexEntry] = {row: down, column: along + max(offset, 0)}
        return [moved[d] if d in moved else next(lead) for d in range(self.rank)]

    return b.scatter(self, source.shape, place, lambda at: S(source.at(at)).cast(self.dtype))


@op("aten.masked_scatter.default", samples="masked_scatter")
def masked_scatter(b: Builder, self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The n-th true place of mask, in row-major order, gets the n-th element of source."""
    if any(s.is_const and s.value == 0 for s in source.shape):
        return self
    shape = broadcast_shapes([self.shape, mask.shape])
    base, chosen = expanded(self, shape), expanded(mask, shape)
    nth = b.scan(Combine.SUM, reshaped(b.cast(chosen, DType.I64), (base.numel,)), 0)
    flat = reshaped(source, (source.numel,))
    place = reshaped(nth, shape)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        n = S(place.at(index)) - 1
        at = checked(select(n < 0, 0, n), flat.shape[0])
        return select(S(chosen.at(index)), S(flat.at((at,))), S(base.at(index))).e

    return Tensor(self.dtype, shape, element)


@op("aten.histc.default", samples="histc")
def histc(b: Builder, self: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """How many elements fall into each of `bins` equal parts of [min, max]; the last part has its end."""
    if not self.dtype.is_float:
        refuse(f"histc of {self.dtype}")
    if min == max:
        refuse("histc without a range, which it then takes from the values: give min and max")
    flat, compute, outside = reshaped(self, (self.numel,)), self.dtype.compute, dim(bins)

    def place(at: tuple[Dim, ...]) -> list[IndexEntry]:
        x = S(flat.at(at)).cast(compute)
        part = prim(Prim.TRUNC, (x - float(min)) / float(max - min) * float(bins))
        counts = (x >= float(min)) & (x <= float(max))
        within = select(counts, select(part < float(bins), part, float(bins - 1)), 0.0).cast(DType.I64)
        return [checked(select(counts, within, bins), outside + 1, negative=False)]

    counted = b.scatter(b.full((outside + 1,), 0, self.dtype), flat.shape, place, lambda at: S(constant(1, self.dtype)), Combine.SUM)
    return narrowed(counted, 0, 0, outside)
