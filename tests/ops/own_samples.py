"""Samples of rows that OpInfo has none for, or whose overload its samples never call: name -> dtype -> [(args, kwargs)]. A call that
eager refuses for a dtype is dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tests.ops.recurrent_samples import RECURRENT

Calls = Sequence[tuple[Sequence[Any], dict[str, Any]]]


def t(dtype: torch.dtype, *shape: int, low: int = -9, high: int = 9) -> torch.Tensor:
    """Random values; whole numbers for integers."""
    generator = torch.Generator().manual_seed(sum((k + 2) * s for k, s in enumerate(shape)) + 7)
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    low = 0 if dtype is torch.uint8 else low
    return torch.randint(low, high, shape, generator=generator, dtype=dtype)


def ints(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def with_scalar(dtype: torch.dtype) -> Calls:
    calls = [([t(dtype, *shape), s], {}) for shape in ((3, 4), (5,), ()) for s in (3, -2, 0, 2.5, True)]
    return [*calls, ([torch.tensor(2, dtype=dtype), 7], {}), ([t(dtype, 0, 3), 2], {})]


def with_scalar_mode(dtype: torch.dtype) -> Calls:
    return [([t(dtype, 3, 4), s], {"rounding_mode": mode}) for s in (3, -2, 2.5) for mode in (None, "trunc", "floor")]


def one(dtype: torch.dtype) -> Calls:
    return [([t(dtype, *shape)], {}) for shape in ((3, 4), (1, 3, 1), (), (0, 2), (5,))]


def index_calls(dtype: torch.dtype) -> Calls:
    x = t(dtype, 4, 5, 6)
    pairs = [
        [ints(0, 3, -1)],
        [None, ints([0, 4], [-5, 2])],
        [ints(0, 1), ints(2, -1)],
        [ints(0, 1), None, ints(2, -6)],
        [None, ints([[1], [2]]), ints(0, 3)],
        [ints(1), None, ints([[5], [0]])],
        [torch.tensor(2)],
        [torch.zeros(0, dtype=torch.int64)],
        [ints(1, 2).int(), None, ints([[0], [1]])],
    ]
    return [([x, p], {}) for p in pairs]


def index_put_calls(dtype: torch.dtype) -> Calls:
    x = t(dtype, 4, 5)
    return [
        ([x, [ints(0, 3, -1)], t(dtype, 3, 5)], {"accumulate": True}),
        ([x, [ints(0, 3, 1)], t(dtype, 5)], {}),
        ([x, [ints(0, 0, 1), ints(1, 1, -2)], t(dtype, 3)], {"accumulate": True}),
        ([x, [None, ints(2, 4)], t(dtype, 4, 2)], {}),
        ([x, [ints([0], [2]), ints(1, 3)], t(dtype)], {}),
    ]


def batch_norm_calls(dtype: torch.dtype) -> Calls:
    calls = []
    for shape in ((2, 3, 4, 5), (4, 3), (1, 2, 6), (0, 3, 2)):
        c = shape[1]
        mean, var = t(dtype, c), t(dtype, c, low=1, high=4)
        calls.append(([t(dtype, *shape), t(dtype, c), t(dtype, c), mean, var, 0.1, 1e-5], {}))
        calls.append(([t(dtype, *shape), None, None, mean, var, 0.1, 1e-3], {}))
    return calls


def batch_stats_calls(dtype: torch.dtype) -> Calls:
    return [
        ([t(dtype, *shape), weight, bias, True, 0.1, 1e-5], {})
        for shape in ((2, 3, 4, 5), (4, 3), (3, 2, 6))
        for weight, bias in ((t(dtype, shape[1]), t(dtype, shape[1])), (None, None))
    ]


def distinct(dtype: torch.dtype) -> list[torch.Tensor]:
    if dtype is torch.bool:
        return []
    return [(torch.randperm(n, generator=torch.Generator().manual_seed(n)) - 3).to(dtype).reshape(shape) for n, shape in ((24, (2, 3, 4)), (7, (7,)))]


def max_pool_calls(dtype: torch.dtype, n: int) -> Calls:
    x = t(dtype, *(2, 3, 7, 6, 8)[: n + 2])
    calls = [([x, [3] * n], {}), ([x, [2] * n, [1] * n], {}), ([x, [3] * n, [2] * n, [1] * n], {}), ([x, [2] * n, [2] * n, [0] * n, [2] * n], {})]
    return [*calls, ([x, [3] * n, [2] * n, [1] * n, [1] * n, True], {}), ([x[0], [2] * n], {}), ([x, [3] * n, [2] * n, [1] * n, [2] * n, True], {})]


def conv_transpose_calls(dtype: torch.dtype, n: int) -> Calls:
    """input, weight, bias, stride, padding, output_padding, groups, dilation; OpInfo's are too large in three dimensions."""
    x, w, shared = t(dtype, *(2, 4, 3, 2, 3)[: n + 2]), t(dtype, *(4, 3, 2, 3, 2)[: n + 2]), t(dtype, *(4, 1, 3, 2, 2)[: n + 2])
    return [
        ([x, w], {}),
        ([x, w, t(dtype, 3), 2], {}),
        ([x, w, None, [2, 1, 3][:n], [1, 0, 1][:n], [1, 0, 2][:n]], {}),
        ([x, shared, t(dtype, 4), 2, 1, 1, 4], {}),
        ([x[0], w, t(dtype, 3), 1, 0, 0, 1, 2], {}),
        ([x, shared, None, [3, 2, 2][:n], 1, 0, 2, [1, 2, 1][:n]], {}),
    ]


def resize_calls(dtype: torch.dtype, n: int, extra: tuple[Any, ...]) -> Calls:
    x = t(dtype, *(2, 3, 4, 5, 3)[: n + 2])
    sizes = [(8, 10, 6)[:n], (3, 7, 5)[:n], (2, 2, 1)[:n], (1, 1, 1)[:n]]
    scales = [(2.0,) * n, (0.5,) * n, (1.7,) * n]
    return [([x, list(s), *extra, None], {}) for s in sizes] + [([x, None, *extra, list(f)], {}) for f in scales]


def arange_calls(dtype: torch.dtype) -> Calls:
    typed = [([0, 7, 2], {"dtype": dtype}), ([5, -4, -3], {"dtype": dtype}), ([0.5, 3.1, 0.25], {"dtype": dtype})]
    return [([0, 5], {}), ([-2, 9, 3], {}), ([1.0, 2.0, 0.3], {}), ([0, 0, 1], {}), ([3, 3], {}), *typed]


def to_calls(dtype: torch.dtype) -> Calls:
    others = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float16, torch.int8, torch.uint8)
    low = 0 if dtype is torch.uint8 else -9
    return [([t(dtype, 3, 4, low=low), other], {}) for other in others if other != dtype]


def bag_calls(dtype: torch.dtype, negative_padding: bool = False, default_mode: bool = False) -> Calls:
    """Bags of one size, of several, none in one; a padding index; weights; the last offset given."""
    if not dtype.is_floating_point:
        return []
    table, i = t(dtype, 7, 5), ints(1, 2, 2, 6, 0, 2, 4, 3, 1, 1, 5, 2)
    calls: list[tuple[Sequence[Any], dict[str, Any]]] = []
    for mode in (0, 1, 2):
        for offsets, last in ((ints(0, 3, 6, 9), False), (ints(0, 0, 5, 5, 7), False), (ints(0, 4, 4, 12), True), (ints(0, 12), False)):
            for padding in (-1, 2) if not negative_padding else (-5, 2):
                calls.append(([table, i, offsets, False, mode, False, None, last and mode != 0, padding], {}))
    calls.append(([table, i.int(), ints(0, 3, 6, 9).int(), False, 0, False, t(dtype, 12), False, 2], {}))
    calls.append(([table, ints(), ints(0, 0), False, 0, False, None, False, 3], {}))
    calls.append(([table, ints(3, 4), ints(0, 1, 2, 2), False, 1, False, None, False, 3], {}))
    return [(a[:8] if default_mode else a, k) for a, k in calls]


def weight_norm_calls(dtype: torch.dtype) -> Calls:
    return [([t(dtype, 3, 4, 5), t(dtype, 3, 1, 1), 0], {}), ([t(dtype, 3, 4, 5), t(dtype, 1, 1, 5), 2], {}), ([t(dtype, 6, 2), t(dtype, 6, 1)], {})]


def pad_calls(dtype: torch.dtype) -> Calls:
    x = t(dtype, 2, 3, 5, 6)
    modes = [([x, [1, 2, 3, 1], mode], {}) for mode in ("reflect", "replicate", "circular")]
    return [*modes, ([x, [1, 2, 0, 3, 1, 0], "constant", 2.0], {}), ([x, [1, -2]], {}), ([x[0], [2, 5], "circular"], {})]


def to_copy_calls(dtype: torch.dtype) -> Calls:
    return [(a[:1], {"dtype": a[1]}) for a, _ in to_calls(dtype)]


MOVES: Mapping[str, Sequence[Any]] = {"int": [(0, 2), (-1, 0), (1, 1)], "intlist": [([0, 1], [2, 0]), ([-1], [0]), ([2, 0, 1], [0, 1, 2])]}
TRIANGLES = ((3, 3, 0), (27, 27, -1), (4, 6, 1), (6, 4, -2), (3, 5, 9), (5, 3, -7), (0, 4, 0), (4, 0, 0), (1, 1, 0))


def slice_scatter_calls(dtype: torch.dtype) -> Calls:
    x = t(dtype, 4, 5)
    return [
        ([x, t(dtype, 2, 5), 0, 1, 3], {}),
        ([x, t(dtype, 4, 2), 1, -3, -1], {}),
        ([x, t(dtype, 4, 3), 1, 0, 99, 2], {}),
        ([x, t(dtype, 4, 5)], {}),
        ([x, t(dtype, 0, 5), 0, 2, 2], {}),
        ([t(dtype, 5), t(dtype, 2)], {"start": 1, "end": 5, "step": 2}),
    ]


def grouped(dtype: torch.dtype) -> Calls:
    """Groups of two, none and four rows."""
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    return [([t(dtype, 6, k, low=-2, high=2), t(dtype, 3, k, n, low=-2, high=2), ends], {}) for k, n in ((8, 16), (16, 8))]


OWN: Mapping[str, Callable[[torch.dtype], Calls]] = {
    "aten._grouped_mm.default": grouped,
    "transformers.grouped_mm_fallback.default": grouped,
    "aten.slice_scatter.default": slice_scatter_calls,
    **{
        f"aten.{name}.Scalar": with_scalar
        for name in ("add", "sub", "mul", "div", "rsub", "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor")
    },
    **{f"aten.{name}.Scalar": with_scalar for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"aten.bitwise_{name}_shift.Tensor_Scalar": with_scalar for name in ("left", "right")},
    **{f"aten.__{name}shift__.Scalar": with_scalar for name in ("l", "r")},
    "aten.searchsorted.Scalar": lambda d: [([t(d, 7).sort().values, 2], {"right": r}) for r in (False, True)],
    "aten.bucketize.Scalar": lambda d: [([2, t(d, 7).sort().values], {"out_int32": r}) for r in (False, True)],
    **{f"aten.{name}.default": with_scalar for name in ("clamp_min", "clamp_max")},
    "aten.div.Scalar_mode": with_scalar_mode,
    "aten.pow.Tensor_Scalar": lambda d: [
        ([t(d, 3, 4), e], {}) for e in (0, 1, 2, 3, 5, 0.5, -0.5, -1, -2, 2.0, 3.0, 1.7, -1.5, 0.0, 1.0, float("inf"), 70)
    ],
    "aten.pow.Scalar": lambda d: [([s, t(d, 3, 4)], {}) for s in (1, 2, 0, 2.5, -3, 1.0)],
    "aten.pow.Tensor_Tensor": lambda d: [([t(d, 3, 4), t(d, 3, 4, low=0)], {}), ([t(d, 3, 1), t(d, 4)], {})],
    "aten.where.ScalarOther": lambda d: [([t(torch.bool, 3, 4), t(d, 3, 4), s], {}) for s in (2, 1.5)],
    "aten.where.ScalarSelf": lambda d: [([t(torch.bool, 3, 4), s, t(d, 4)], {}) for s in (2, 1.5)],
    "aten.where.Scalar": lambda d: [([t(torch.bool, 3, 4), a, b], {}) for a, b in ((1, 2), (1, 2.5), (True, False))],
    "aten.masked_fill.Scalar": lambda d: [([t(d, 3, 4), t(torch.bool, 3, 4), s], {}) for s in (0, float("-inf"), -1e9)],
    "aten.clamp.default": lambda d: [
        ([t(d, 4, 3)], {"min": lo, "max": hi}) for lo, hi in ((0, None), (None, 1), (-1.5, 2.5), (3, -3), (float("nan"), None), (-2, 3))
    ],
    "aten.clip.default": lambda d: [([t(d, 4, 3)], {"min": lo, "max": hi}) for lo, hi in ((0, None), (None, 1), (-1.5, 2.5), (-2, 3))],
    "aten.squeeze.default": one,
    "aten.detach.default": one,
    "aten.alias.default": one,
    "aten.detach_copy.default": one,
    "aten.lift_fresh_copy.default": one,
    "aten.view.dtype": lambda d: [([t(d, 3, 4), d], {})],
    "aten._unsafe_view.default": lambda d: [([t(d, 3, 4), [2, 6]], {}), ([t(d, 3, 4), [-1]], {}), ([t(d, 2, 3, 4), [3, -1, 2, 1]], {})],
    "aten.prelu.default": lambda d: [([t(d, 2, 3, 4), t(d, 3)], {}), ([t(d, 5), t(d, 1)], {}), ([t(d), t(d, 1)], {})],
    "aten._prelu_kernel.default": lambda d: [([t(d, 2, 3, 4), t(d, 1, 3, 1)], {})],
    "aten.dropout.default": lambda d: [([t(d, 3, 4), 0.5, False], {})],
    "aten.native_dropout.default": lambda d: [([t(d, 3, 4), 0.5, False], {})],
    "aten._to_copy.default": to_copy_calls,
    "aten.to.device": lambda d: [([a[0], "cpu", a[1]], {}) for a, _ in to_calls(d)],
    "aten.to.other": lambda d: [([t(d, 3, 4), torch.zeros(1, dtype=o)], {}) for o in (torch.float32, torch.int32, torch.bool)],
    "aten._embedding_bag.default": bag_calls,
    "aten._embedding_bag_forward_only.default": bag_calls,
    "aten.embedding_bag.default": lambda d: bag_calls(d, default_mode=True),
    "aten.embedding_bag.padding_idx": lambda d: bag_calls(d, negative_padding=True),
    "aten._weight_norm.default": weight_norm_calls,
    "aten._weight_norm_interface.default": weight_norm_calls,
    "aten.pad.default": pad_calls,
    "aten.diff.default": lambda d: [
        ([t(d, 3, 4)], {}),
        ([t(d, 3, 4), 2, 0], {}),
        ([t(d, 5), 1, -1, t(d, 2), t(d, 1)], {}),
        ([t(d, 3, 4), 5], {}),
        ([t(d, 2, 4), 1, 0, None, t(d, 1, 4)], {}),
    ],
    "aten.meshgrid.default": lambda d: [([[t(d, 3), t(d, 2), t(d)]], {}), ([[t(d, 4)]], {})],
    "aten.meshgrid.indexing": lambda d: [([[t(d, 3), t(d, 2), t(d, 4)]], {"indexing": k}) for k in ("ij", "xy")],
    "aten.split.sizes": lambda d: [([t(d, 6, 4), [1, 3, 2]], {}), ([t(d, 6, 4), [4, 0], 1], {})],
    "aten.unsafe_split.Tensor": lambda d: [([t(d, 6, 4), 4], {}), ([t(d, 6, 4), 1, 1], {})],
    "aten.unsafe_chunk.default": lambda d: [([t(d, 6, 4), 4], {}), ([t(d, 6, 4), 3, 1], {})],
    "aten.repeat_interleave.self_int": lambda d: [
        ([t(d, 3, 4), 2], {}),
        ([t(d, 3, 4), 3, 1], {}),
        ([t(d, 3, 4), 2, 0], {}),
        ([t(d, 3, 4), 0, 1], {}),
    ],
    **{f"aten.movedim.{k}": lambda d, k=k: [([t(d, 2, 3, 4), *p], {}) for p in MOVES[k]] for k in ("int", "intlist")},
    **{f"aten.moveaxis.{k}": lambda d, k=k: [([t(d, 2, 3, 4), *p], {}) for p in MOVES[k]] for k in ("int", "intlist")},
    "aten.numpy_T.default": lambda d: [([t(d, 2, 3, 4)], {}), ([t(d, 3)], {})],
    "aten.mT.default": lambda d: [([t(d, 2, 3, 4)], {}), ([t(d, 3, 1)], {})],
    "aten.one_hot.default": lambda d: [([ints([0, 3], [2, 2]), 4], {}), ([ints(1), 5], {}), ([torch.tensor(1), 2], {})],
    "aten.tril_indices.default": lambda d: [([r, c, o], {}) for r, c, o in TRIANGLES],
    "aten.triu_indices.default": lambda d: [([r, c, o], {}) for r, c, o in TRIANGLES],
    **{f"aten.{name}.Scalar": with_scalar for name in ("not_equal", "less", "less_equal", "greater", "greater_equal")},
    **{f"aten.__{name}__.Scalar": with_scalar for name in ("and", "or", "xor")},
    "aten.argsort.stable": lambda d: [([t(d, 3, 9)], {"stable": True, "dim": dim, "descending": k}) for dim in (0, -1) for k in (False, True)],
    "aten.kthvalue.default": lambda d: [([x, k, dim, keep], {}) for x in distinct(d) for k in (1, 2) for dim in (-1, 0) for keep in (False, True)],
    "aten.median.dim": lambda d: [([x, dim, keep], {}) for x in distinct(d) for dim in (-1, 0) for keep in (False, True)],
    "aten.instance_norm.default": lambda d: [([t(d, 2, 3, 4, 5), w, w, None, None, True, 0.1, 1e-5, False], {}) for w in (None, t(d, 3))],
    "aten.to.dtype": to_calls,
    "aten.to.dtype_layout": to_copy_calls,
    "prims.convert_element_type.default": to_calls,
    "aten.type_as.default": lambda d: [([t(d, 3, 4), torch.zeros(1, dtype=o)], {}) for o in (torch.float32, torch.int32, torch.bool)],
    "aten._fused_rms_norm.default": lambda d: [([t(d, 3, 4), [4], w, e], {}) for w in (None, t(d, 4)) for e in (None, 1e-3)],
    "aten.batch_norm.default": lambda d: [([*a[:5], False, *a[5:], False], {}) for a, _ in batch_norm_calls(d)],
    "aten.copy.default": lambda d: [([t(d, 3, 4), t(torch.float32, 4)], {}), ([t(torch.float32, 3), t(d, 3)], {})],
    "aten.arange.start_step": lambda d: [(a if len(a) == 3 else [*a, 1], k) for a, k in arange_calls(d)],
    "aten.arange.start": lambda d: [(a[:2], k) for a, k in arange_calls(d)],
    "aten.arange.default": lambda d: [(a[1:2], k) for a, k in arange_calls(d)],
    "aten.full.default": lambda d: [([[2, 3], v], {}) for v in (1, 2.5, True, float("-inf"))] + [([[], 3], {"dtype": d})],
    "aten.fill.Scalar": lambda d: [([t(d, 3, 4), v], {}) for v in (1, 2.0, True)],
    "aten.fill.Tensor": lambda d: [([t(d, 3, 4), torch.tensor(3.0)], {})],
    **{
        f"aten.{kind}_pad{n}d.default": lambda d, n=n: [
            ([t(d, *shape), pad], {})
            for shape in ((2, 3, 4, 5, 6)[: n + 2], (3, 4, 5, 6)[: n + 1])
            for pad in ([1, 2, 0, 1, 2, 2][: 2 * n], [0, 3, 1, 1, 1, 0][: 2 * n])
        ]
        for kind in ("reflection", "replication")
        for n in (1, 2, 3)
    },
    **{f"aten.max_pool{n}d{kind}.default": lambda d, n=n: max_pool_calls(d, n) for kind in ("", "_with_indices") for n in (1, 2, 3)},
    **{f"aten.conv_transpose{n}d.{'default' if n == 1 else 'input'}": lambda d, n=n: conv_transpose_calls(d, n) for n in (1, 2, 3)},
    **{f"aten.upsample_nearest{n}d.vec": lambda d, n=n: resize_calls(d, n, ()) for n in (1, 2, 3)},
    **{
        f"aten.upsample_{kind}{n}d.vec": lambda d, n=n: [*resize_calls(d, n, (False,)), *resize_calls(d, n, (True,))]
        for n, kind in ((1, "linear"), (2, "bilinear"), (3, "trilinear"))
    },
    "aten.col2im.default": lambda d: [
        ([t(d, 2, 12, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]], {}),
        ([t(d, 12, 9), [5, 5], [2, 3], [2, 1], [1, 1], [2, 2]], {}),
        ([t(d, 1, 18, 16), [6, 6], [3, 3], [1, 1], [1, 1], [2, 2]], {}),
        ([t(d, 1, 18, 9), [6, 6], [3, 3], [1, 1], [1, 1], [2, 2]], {}),
    ],
    **{
        f"aten.{name}.default": lambda d, extra=extra: [
            ([x, *extra, dim, flag], {}) for x in distinct(d) for dim in (-1, 0) for flag in (False, True)
        ]
        for name, extra in (("sort", ()), ("argsort", ()), ("topk", (2,)))
    },
    "aten.index.Tensor": index_calls,
    "aten.index_put.default": index_put_calls,
    "aten._softmax.default": lambda d: [([t(d, 3, 4), 1, False], {}), ([t(d, 2, 3, 4), -2, False], {})],
    "aten._log_softmax.default": lambda d: [([t(d, 3, 4), 1, False], {}), ([t(d, 2, 3, 4), -2, False], {})],
    "aten._native_batch_norm_legit_no_training.default": batch_norm_calls,
    "aten._native_batch_norm_legit.no_stats": batch_stats_calls,
    "aten._native_batch_norm_legit.default": lambda d: [([*a[:5], False, *a[5:]], {}) for a, _ in batch_norm_calls(d)],
    "aten.any.dims": lambda d: [([t(d, 2, 3, 4), dims], {"keepdim": k}) for dims in (None, [], [0, 2], [-1]) for k in (False, True)],
    "aten.all.dims": lambda d: [([t(d, 2, 3, 4), dims], {"keepdim": k}) for dims in (None, [], [0, 2], [-1]) for k in (False, True)],
    "aten.var.dim": lambda d: [([t(d, 2, 3, 4), dims, u], {}) for dims in (None, [1], [0, -1]) for u in (False, True)],
    "aten.std.dim": lambda d: [([t(d, 2, 3, 4), dims, u], {}) for dims in (None, [1], [0, -1]) for u in (False, True)],
}

DEVIATIONS: Mapping[str, Mapping[str, str]] = {  # hostile variants, and sizes a symbol takes, on which a row differs from eager
    **{
        f"aten._fft_{kind}.default": {"values": "an infinity meets every cosine, that of 0 too; in eager only those that its butterflies have"}
        for kind in ("r2c", "c2c", "c2r")
    },
    "aten.var_mean.correction": {"values": "the mean of values with an infinity is infinite; eager's running mean turns to NaN"},
    "aten.std_mean.correction": {"values": "as var_mean"},
    "aten.pow.Tensor_Tensor": {"values": "an odd integer to a power above 64 overflows to other bits"},
    "aten.native_dropout.default": {"empty": "eager's mask of an empty input is not bool", "size 0": "the same"},
    "aten.expand.default": {"size 1": "export has made a size that is expanded a number"},
    "aten.broadcast_to.default": {"size 1": "the same"},
    "aten.squeeze.default": {"size 1": "export has made a size of 1 a number"},
    "aten.squeeze.dim": {"size 1": "the same"},
    "aten.squeeze.dims": {"size 1": "the same"},
    "aten.pixel_unshuffle.default": {"size 0": "eager leaves an empty tensor as it is"},
    "aten.native_group_norm.default": {
        "size 1": "one element a group: eager's x * scale + shift cancels badly, ours is exact",
        "ones": "the same",
    },
    "aten.group_norm.default": {"size 1": "the same", "ones": "the same"},
    "aten._native_batch_norm_legit.no_stats": {"size 1": "the same", "ones": "the same"},
    "aten._grouped_mm.default": {
        "size 0": "without a group there is no matrix to read, and the run fails; eager's answer is zeros",
        "size 1": "rows behind the last group are 0; eager leaves them unset",
        "size 7": "the same",
    },
    "transformers.grouped_mm_fallback.default": {"size 0": "as _grouped_mm"},
    "aten.conv1d.default": {"size 0": "eager has no output channels where there are no input channels", "empty": "the same"},
    "aten.conv1d.padding": {"size 0": "the same", "empty": "the same", "values": "an infinite weight meets padding's zeros, or not: by kernel"},
    "aten.convolution.default": {"size 0": "the same", "empty": "the same"},
    **{
        f"aten.{name}": {"values": "a sequence that is not sorted has no place to find", "size 7": "the same"}
        for name in ("searchsorted.Tensor", "searchsorted.Scalar", "bucketize.Tensor", "bucketize.Scalar")
    },
    "aten.sort.default": {"values": "eager orders equals as it likes"},
    "aten.argsort.default": {"values": "the same"},
    "aten.topk.default": {"values": "the same"},
    "aten.kthvalue.default": {"values": "the same"},
    "aten.median.dim": {"values": "the same"},
    **{
        f"aten.{name}": {
            "values": "eager's maximum passes over a NaN unless it comes first",
            "strided": "eager reads strided indices as if they were contiguous",
        }
        for name in ("_embedding_bag.default", "_embedding_bag_forward_only.default", "embedding_bag.default", "embedding_bag.padding_idx")
    },
    "aten._weight_norm.default": {"empty": "eager divides by the size and dies (SIGFPE)", "size 0": "the same"},
    "aten._weight_norm_interface.default": {
        "empty": "the same",
        "size 0": "the same",
        "strided": "eager reads strided operands as if they were contiguous",
    },
    "aten.instance_norm.default": {"size 1": "as native_group_norm", "ones": "the same"},
    "aten.addmv.default": {"size 0": "eager does not expand the addend to no rows", "empty": "the same"},
}

UNSPECIFIED = frozenset(  # rows whose values eager leaves open: only shape and dtype are compared
    {"aten.empty.memory_format", "aten.empty_strided.default", "aten.empty_like.default", "aten.new_empty.default"}
)
OWN = {
    **OWN,
    **RECURRENT,
    "aten.empty.memory_format": lambda d: [([[2, 3]], {"dtype": d}), ([[0]], {})],
    "aten.empty_strided.default": lambda d: [([[2, 3], [3, 1]], {"dtype": d})],
    "aten.empty_like.default": lambda d: [([t(d, 2, 3)], {})],
    "aten.new_empty.default": lambda d: [([t(d, 2, 3), [4]], {})],
}
