"""Views: the same elements at other indices. Each is an index map and makes no loop; a chain of them costs nothing once fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sealift.ir.dim import Dim, dim, divide_exact, is_at_most, product
from sealift.ir.dtype import DType
from sealift.ops.arguments import Size, as_int, as_sizes, refuse, slice_range
from sealift.ops.lang import Builder, IndexEntry, Tensor, broadcast_index, flatten_index, normalize_dim, shifted, unflatten_index
from sealift.ops.pairs import Pair
from sealift.ops.table import op

Entries = tuple[IndexEntry, ...]


def view(t: Tensor, shape: Sequence[Dim], source: Callable[[Entries], Sequence[IndexEntry]]) -> Tensor:
    """The tensor whose element at i is t's at source(i)."""
    return Tensor(t.dtype, tuple(shape), lambda index: t.at(source(index)))


def expanded(t: Tensor, shape: Sequence[Dim]) -> Tensor:
    return t if t.shape == tuple(shape) else view(t, shape, lambda index: broadcast_index(index, t.shape))


def unsqueezed(t: Tensor, at: int) -> Tensor:
    return view(t, (*t.shape[:at], dim(1), *t.shape[at:]), lambda i: (*i[:at], *i[at + 1 :]))


def squeezed(t: Tensor, dims: Sequence[int]) -> Tensor:
    """Without the given dimensions, each of size 1."""
    kept = [d for d in range(t.rank) if d not in dims]

    def source(index: Entries) -> list[IndexEntry]:
        entries: list[IndexEntry] = [dim(0)] * t.rank
        for d, i in zip(kept, index):
            entries[d] = i
        return entries

    return view(t, [t.shape[d] for d in kept], source)


def permuted(t: Tensor, dims: Sequence[int]) -> Tensor:
    return view(t, [t.shape[d] for d in dims], lambda index: [index[dims.index(d)] for d in range(t.rank)])


def swapped(t: Tensor, first: int, second: int) -> Tensor:
    dims = list(range(t.rank))
    dims[first], dims[second] = second, first
    return permuted(t, dims)


def narrowed(t: Tensor, along: int, start: Size, length: Size, step: int = 1) -> Tensor:
    shape = (*t.shape[:along], dim(length), *t.shape[along + 1 :])
    return view(t, shape, lambda i: (*i[:along], shifted(i[along], dim(start), step), *i[along + 1 :]))


def selected(t: Tensor, along: int, at: Size) -> Tensor:
    position = dim(at)
    if position.upper < 0:
        position = position + t.shape[along]
    elif position.lower < 0:
        refuse(f"select at {position}, which may be negative or not, depending on sizes")
    return view(t, (*t.shape[:along], *t.shape[along + 1 :]), lambda i: (*i[:along], position, *i[along:]))


def reshaped(t: Tensor, shape: Sequence[Size]) -> Tensor:
    """Row-major order kept. Dimensions that stay pass through; the others are flattened and divided again, in groups of equal product."""
    wanted = _resolved(as_sizes(shape), t)
    if wanted == t.shape:
        return t
    if dim(0) in wanted:  # nothing to read, and no division by a size of 0
        return view(t, wanted, lambda index: (dim(0),) * t.rank)
    groups = _groups(t.shape, wanted)

    def source(index: Entries) -> list[IndexEntry]:
        entries: list[IndexEntry] = []
        for (old_from, old_to), (new_from, new_to) in groups:
            old, new = t.shape[old_from:old_to], wanted[new_from:new_to]
            if old == new:
                entries.extend(index[new_from:new_to])
            elif old:
                entries.extend(unflatten_index(flatten_index(index[new_from:new_to], new), old))
        return entries

    return view(t, wanted, source)


def _resolved(shape: tuple[Dim, ...], t: Tensor) -> tuple[Dim, ...]:
    """With the one -1 replaced by what is left over."""
    if dim(-1) not in shape:
        return shape
    at = shape.index(dim(-1))
    known = product(d for position, d in enumerate(shape) if position != at)
    if known == dim(0):
        refuse("reshape to a shape with both -1 and a size of 0")
    rest = divide_exact(t.numel, known)
    return (*shape[:at], rest if rest is not None else t.numel // known, *shape[at + 1 :])


def _groups(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Matching runs of dimensions, each of one product on both sides; the last takes what cannot be matched."""
    groups: list[tuple[tuple[int, int], tuple[int, int]]] = []
    at_old, at_new = 0, 0
    while at_old < len(old) or at_new < len(new):
        end_old, end_new = at_old, at_new
        if at_old < len(old) and at_new < len(new) and old[at_old] == new[at_new]:
            end_old, end_new = at_old + 1, at_new + 1
        elif at_old < len(old) and old[at_old] == dim(1):
            end_old += 1
        elif at_new < len(new) and new[at_new] == dim(1):
            end_new += 1
        else:
            end_old, end_new = _first_match(old, new, at_old, at_new)
        groups.append(((at_old, end_old), (at_new, end_new)))
        at_old, at_new = end_old, end_new
    return groups


def _first_match(old: tuple[Dim, ...], new: tuple[Dim, ...], at_old: int, at_new: int) -> tuple[int, int]:
    for total in range(2, len(old) - at_old + len(new) - at_new):
        for count_old in range(1, total):
            end_old, end_new = at_old + count_old, at_new + total - count_old
            if end_old <= len(old) and end_new <= len(new) and product(old[at_old:end_old]) == product(new[at_new:end_new]):
                return end_old, end_new
    return len(old), len(new)


# ---- rows ----------------------------------------------------------------------------------------------------------------------


@op("aten.view.default", samples="view")
@op("aten._unsafe_view.default")
def view_(b: Builder, self: Tensor, size: Sequence[Size]) -> Tensor:
    return reshaped(self, size)


@op("aten.reshape.default", samples="reshape")
def reshape(b: Builder, self: Tensor, shape: Sequence[Size]) -> Tensor:
    return reshaped(self, shape)


@op("aten.view_as.default", samples="view_as")
@op("aten.reshape_as.default", samples="reshape_as")
def reshape_as(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return reshaped(self, other.shape)


@op("aten.ravel.default", samples="ravel")
def ravel(b: Builder, self: Tensor) -> Tensor:
    return reshaped(self, (self.numel,))


@op("aten.flatten.using_ints", samples="flatten")
def flatten(b: Builder, self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    start, end = normalize_dim(start_dim, self.rank), normalize_dim(end_dim, self.rank)
    return reshaped(self, (*self.shape[:start], product(self.shape[start : end + 1]), *self.shape[end + 1 :]))


@op("aten.unflatten.int", samples="unflatten")
def unflatten(b: Builder, self: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
    at = normalize_dim(dim, self.rank)
    inner = _resolved(as_sizes(sizes), Tensor(self.dtype, (self.shape[at],), self.fn))
    return reshaped(self, (*self.shape[:at], *inner, *self.shape[at + 1 :]))


@op("aten.permute.default", samples="permute")
def permute(b: Builder, self: Tensor, dims: Sequence[int]) -> Tensor:
    return permuted(self, [normalize_dim(d, self.rank) for d in dims])


@op("aten.movedim.int", samples="movedim")
@op("aten.movedim.intlist", samples="movedim")
@op("aten.moveaxis.int", samples="movedim")
@op("aten.moveaxis.intlist", samples="movedim")
def movedim(b: Builder, self: Tensor, source: Sequence[int] | int, destination: Sequence[int] | int) -> Tensor:
    """The listed dimensions at new places, the others in the order they had."""
    from_, to = ([normalize_dim(d, self.rank) for d in (x if isinstance(x, Sequence) else (x,))] for x in (source, destination))
    placed = dict(zip(to, from_))
    rest = iter(d for d in range(self.rank) if d not in from_)
    return permuted(self, [placed[d] if d in placed else next(rest) for d in range(self.rank)])


@op("aten.swapaxes.default", samples="transpose")
def swapaxes(b: Builder, self: Tensor, axis0: int, axis1: int) -> Tensor:
    result: Tensor = transpose(b, self, axis0, axis1)
    return result


@op("aten.mT.default", samples="adjoint")
def matrix_transpose(b: Builder, self: Tensor) -> Tensor:
    return swapped(self, self.rank - 2, self.rank - 1) if self.rank else self


@op("aten.numpy_T.default", samples="T")
def reverse_dims(b: Builder, self: Tensor) -> Tensor:
    return permuted(self, tuple(reversed(range(self.rank))))


@op("aten.transpose.int", samples="transpose")
@op("aten.swapdims.default", samples="transpose")
def transpose(b: Builder, self: Tensor, dim0: int, dim1: int) -> Tensor:
    return swapped(self, normalize_dim(dim0, self.rank), normalize_dim(dim1, self.rank)) if self.rank else self


@op("aten.t.default", samples="t")
def t(b: Builder, self: Tensor) -> Tensor:
    return swapped(self, 0, 1) if self.rank == 2 else self


@op("aten.expand.default", samples="expand")
@op("aten.broadcast_to.default", samples="broadcast_to")
def expand(b: Builder, self: Tensor, size: Sequence[Size]) -> Tensor:
    added = len(size) - self.rank
    wanted = as_sizes(size)
    return expanded(self, [self.shape[k - added] if s == dim(-1) else s for k, s in enumerate(wanted)])


@op("aten.expand_as.default", samples="expand_as")
def expand_as(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return expanded(self, other.shape)


@op("aten.unsqueeze.default", samples="unsqueeze")
def unsqueeze(b: Builder, self: Tensor, dim: int) -> Tensor:
    return unsqueezed(self, normalize_dim(dim, self.rank + 1))


@op("aten.squeeze.default")
def squeeze(b: Builder, self: Tensor) -> Tensor:
    return squeezed(self, [d for d, s in enumerate(self.shape) if s == dim(1)])


@op("aten.squeeze.dim", samples="squeeze")
@op("aten.squeeze.dims", samples="squeeze")
def squeeze_dims(b: Builder, self: Tensor, dim: Sequence[int] | int) -> Tensor:
    listed = dim if isinstance(dim, Sequence) else (dim,)
    return squeezed(
        self, [d for d in (normalize_dim(x, self.rank) for x in listed) if self.rank and self.shape[d].is_const and self.shape[d].value == 1]
    )


@op("aten.slice.Tensor", samples="slice")
def slice_(b: Builder, self: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1) -> Tensor:
    along = normalize_dim(dim, self.rank)
    first, every, count = slice_range(start, end, step, self.shape[along])
    return narrowed(self, along, first, count, every)


@op("aten.narrow.default", samples="narrow")
def narrow(b: Builder, self: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    along = normalize_dim(dim, self.rank)
    first, _, _ = slice_range(start, None, 1, self.shape[along])
    return narrowed(self, along, first, length)


@op("aten.select.int", samples="select")
def select(b: Builder, self: Tensor, dim: int, index: Size) -> Tensor:
    return selected(self, normalize_dim(dim, self.rank), index)


@op("aten.diagonal.default", samples="diagonal")
def diagonal(b: Builder, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    first, second = normalize_dim(dim1, self.rank), normalize_dim(dim2, self.rank)
    down, right = max(-offset, 0), max(offset, 0)
    rows, columns = self.shape[first] - down, self.shape[second] - right
    shorter = rows if is_at_most(rows, columns) else columns if is_at_most(columns, rows) else None
    if shorter is None or (shorter.lower < 0 and not shorter.is_const):
        refuse(f"diagonal of {self.shape[first]} by {self.shape[second]}: which is shorter depends on sizes")
    length = shorter if shorter.lower >= 0 else dim(0)
    kept = [d for d in range(self.rank) if d not in (first, second)]

    def source(index: Entries) -> list[IndexEntry]:
        entries: list[IndexEntry] = [dim(0)] * self.rank
        for d, i in zip(kept, index):
            entries[d] = i
        entries[first], entries[second] = shifted(index[-1], dim(down)), shifted(index[-1], dim(right))
        return entries

    return view(self, [*(self.shape[d] for d in kept), length], source)


@op("aten.flip.default", samples="flip")
def flip(b: Builder, self: Tensor, dims: Sequence[int]) -> Tensor:
    turned = {normalize_dim(d, self.rank) for d in dims} if self.rank else set()
    return view(self, self.shape, lambda index: [shifted(i, self.shape[d] - 1, -1) if d in turned else i for d, i in enumerate(index)])


@op("aten.repeat.default", samples="repeat")
def repeat(b: Builder, self: Tensor, repeats: Sequence[Size]) -> Tensor:
    """[r0 * s0, r1 * s1]: as a view [r0, s0, r1, s1], then reshaped."""
    times = as_sizes(repeats)
    lead = len(times) - self.rank
    sizes = (dim(1),) * lead + self.shape
    paired = [d for r, s in zip(times, sizes) for d in (r, s)]
    apart = view(self, paired, lambda index: broadcast_index(index[2 * lead + 1 :: 2], self.shape))
    return reshaped(apart, [r * s for r, s in zip(times, sizes)])


@op("aten.tile.default", samples="tile")
def tile(b: Builder, self: Tensor, dims: Sequence[Size]) -> Tensor:
    """repeat, with leading ones where `dims` is short."""
    result: Tensor = repeat(b, self, [*[1] * (self.rank - len(dims)), *dims])
    return result


@op("aten.repeat_interleave.self_int", samples="repeat_interleave")
def repeat_interleave(b: Builder, self: Tensor, repeats: Size, dim: int | None = None, output_size: Size | None = None) -> Tensor:
    """Each element along a dimension `repeats` times in a row; without a dimension, of the flat tensor."""
    if dim is None:
        flat: Tensor = repeat_interleave(b, reshaped(self, (self.numel,)), repeats, 0)
        return flat
    along = normalize_dim(dim, self.rank)
    wide = unsqueezed(self, along + 1)
    times = as_sizes((repeats,))[0]
    apart = expanded(wide, (*wide.shape[: along + 1], times, *wide.shape[along + 2 :]))
    return reshaped(apart, (*self.shape[:along], self.shape[along] * times, *self.shape[along + 1 :]))


@op("aten.split_with_sizes.default", samples="split_with_sizes")
def split_with_sizes(b: Builder, self: Tensor, split_sizes: Sequence[Size], dim: int = 0) -> tuple[Tensor, ...]:
    along = normalize_dim(dim, self.rank)
    parts: list[Tensor] = []
    start: Dim = as_sizes((0,))[0]
    for length in as_sizes(split_sizes):
        parts.append(narrowed(self, along, start, length))
        start = start + length
    return tuple(parts)


@op("aten.split.sizes", samples="split_with_sizes")
def split_sizes(b: Builder, self: Tensor, split_size: Sequence[Size], dim: int = 0) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] = split_with_sizes(b, self, split_size, dim)
    return result


@op("aten.split.Tensor", samples="split")
@op("aten.unsafe_split.Tensor", samples="unsafe_split")
def split(b: Builder, self: Tensor, split_size: Size, dim: int = 0) -> tuple[Tensor, ...]:
    along = normalize_dim(dim, self.rank)
    size, step = as_int(self.shape[along], "the size of a dimension that is split"), as_int(split_size, "the size of a part")
    starts = range(0, size, step) if size else (0,)
    return tuple(narrowed(self, along, s, min(step, size - s)) for s in starts)


@op("aten.chunk.default", samples="chunk")
@op("aten.unsafe_chunk.default", samples="unsafe_chunk")
def chunk(b: Builder, self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    size = as_int(self.shape[normalize_dim(dim, self.rank)], "the size of a dimension that is split")
    if size == 0:
        return (self,) * chunks
    result: tuple[Tensor, ...] = split(b, self, -(-size // chunks), dim)
    return result


@op("aten.unbind.int", samples="unbind")
def unbind(b: Builder, self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    along = normalize_dim(dim, self.rank)
    return tuple(selected(self, along, k) for k in range(as_int(self.shape[along], "the size of a dimension that is unbound")))


@op("aten.pixel_shuffle.default", samples="nn.functional.pixel_shuffle")
def pixel_shuffle(b: Builder, self: Tensor, upscale_factor: int) -> Tensor:
    """[*, c*r*r, h, w] -> [*, c, h*r, w*r]"""
    *lead, channels, height, width = self.shape
    r, n = upscale_factor, len(lead)
    apart = reshaped(self, [*lead, channels // (r * r), r, r, height, width])
    woven = permuted(apart, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return reshaped(woven, [*lead, channels // (r * r), height * r, width * r])


@op("aten.pixel_unshuffle.default", samples="nn.functional.pixel_unshuffle")
def pixel_unshuffle(b: Builder, self: Tensor, downscale_factor: int) -> Tensor:
    """[*, c, h*r, w*r] -> [*, c*r*r, h, w]; an empty one stays as it is, in eager"""
    if any(s.is_const and s.value == 0 for s in self.shape):
        return self
    *lead, channels, height, width = self.shape
    r, n = downscale_factor, len(lead)
    apart = reshaped(self, [*lead, channels, height // r, r, width // r, r])
    woven = permuted(apart, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return reshaped(woven, [*lead, channels * (r * r), height // r, width // r])


@op("aten.detach.default")
@op("aten.alias.default", samples="positive")
@op("aten.clone.default", samples="clone")
@op("aten.contiguous.default", samples="contiguous")
@op("aten.lift_fresh_copy.default")
@op("aten.detach_copy.default")
def same(b: Builder, self: Tensor) -> Tensor:
    return self


@op("aten.unfold.default", samples="unfold")
def unfold(b: Builder, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along one dimension, the place inside the window last."""
    if self.rank == 0:
        return reshaped(self, (1,))
    along = normalize_dim(dimension, self.rank)
    count = (self.shape[along] - size) // step + 1
    shape = (*self.shape[:along], count, *self.shape[along + 1 :], dim(size))

    return view(self, shape, lambda i: (*i[:along], shifted(i[along], i[-1], step), *i[along + 1 : -1]))


@op("aten.view.dtype")
def view_dtype(b: Builder, self: Tensor, dtype: DType) -> Tensor:
    if dtype is self.dtype:
        return self
    if {dtype, self.dtype} == {DType.F32, DType.C64} and self.rank:
        return _complex_or_real(self, dtype)
    refuse(f"view of {self.dtype} as {dtype}: reinterpreting bytes is not supported")


def _complex_or_real(self: Tensor, dtype: DType) -> Tensor:
    """Two f32 along the last dimension as one complex number, or back."""
    *lead, last = self.shape
    if dtype is DType.F32:
        return reshaped(self.held, (*lead, last * 2))
    size = divide_exact(last, dim(2))
    if size is None:
        refuse(f"view of a last dimension of {last} as complex numbers")
    twos = reshaped(self, (*lead, size, 2))
    return Tensor(dtype, (*lead, size), lambda index: Pair(lambda part: twos.at((*index, part))))
