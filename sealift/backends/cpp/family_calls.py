"""Calls of kernel families: the argument structs that the headers of kernels/gemm, attention, conv and sort declare, filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sealift.backends.cpp.spelling import size_text
from sealift.backends.cpp.stage import Lines
from sealift.diag.errors import InternalError
from sealift.ir.dim import ONE, ZERO, Dim, Sym, dim, product
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.operands import Strided, accepts, collapsed_stride, output_view, strided
from sealift.ir.loop.types import Call, Loops, Operand

ROW_MAJOR, PANEL32, PANEL32_T, CONV_PANEL32, CONV_DEPTHWISE, CONV_TRANSPOSE_PANEL32 = 0, 1, 2, 3, 4, 5  # contracts/sealift_model.h: sealift_layout

_ROW_PRODUCTS, _PANEL = 1, 32  # rows up to which weights are read once; kPanel

FAMILY_HEADERS = {name: f"kernels/{name}/{name}.h" for name in ("attention", "bags", "conv", "gemm", "recurrent", "sort")}

_ACTIVATIONS = {
    "relu": "kActivationRelu", "gelu": "kActivationGeluErf", "gelu_tanh": "kActivationGeluTanh", "silu": "kActivationSilu",
    "sigmoid": "kActivationSigmoid", "tanh": "kActivationTanh", "relu6": "kActivationRelu6", "hardswish": "kActivationHardSwish",
    "hardsigmoid": "kActivationHardSigmoid",
}  # fmt: skip


def family_includes(loops: Loops) -> list[str]:
    """The headers of the families that a model calls."""
    used = {stage.family for part in (*loops.parts, loops) for kernel in part.kernels for stage in kernel.stages if isinstance(stage, Call)}
    return [f'#include "{header}"' for name, header in FAMILY_HEADERS.items() if name in used]


@dataclass(frozen=True)
class CallContext:
    """pointer(buffer, layout): the C++ pointer to a buffer; a weight may be asked for in another layout. lies_plainly: the weights that are
    stored row by row in any case."""

    pointer: Callable[[Buffer, int], str]
    names: Mapping[Sym, str]
    lies_plainly: frozenset[str] = frozenset()


def emit_call(call: Call, context: CallContext, lines: Lines, epilogue: str = "") -> str:
    """Writes the call; gives the C++ expression of the scratch bytes it needs per worker. `epilogue`: the function for each finished tile,
    which finds its buffers in a variable called task."""
    for role, operand in call.operands:
        if not accepts(call, role, operand):
            raise InternalError(f"{call.family}: operand {role} ({operand.load.buffer}) lies in memory as the kernel cannot read it")
    match call.family:
        case "gemm":
            return _emit_gemm(call, context, lines, epilogue)
        case "attention":
            return _emit_attention(call, context, lines)
        case "conv":
            return _emit_conv(call, context, lines, epilogue)
        case "sort":
            return _emit_sort(call, context, lines)
        case "bags":
            return _emit_bags(call, context, lines)
        case "recurrent":
            return _emit_recurrent(call, context, lines)
    raise InternalError(f"the C++ backend has no kernel family {call.family!r}")


def packed_layout(b: Operand) -> int:
    """The layout that a constant matrix is stored in for this use: panels, if it is used whole."""
    view = strided(b)
    if view is None or b.load.buffer.kind != "weight" or len(view.shape) != 2 or view.offset.terms or len(b.load.buffer.shape) != 2:
        return ROW_MAJOR
    rows, cols = b.load.buffer.shape
    strides = b.load.buffer.strides
    if b.load.buffer.order is not None or strides != (cols, ONE):
        return ROW_MAJOR
    if view.shape == (rows, cols) and _same(view.strides, (cols, ONE), view.shape):
        return PANEL32
    if view.shape == (cols, rows) and _same(view.strides, (ONE, cols), view.shape):
        return PANEL32_T
    return ROW_MAJOR


def _same(a: tuple[Dim, ...], b: tuple[Dim, ...], shape: tuple[Dim, ...]) -> bool:
    return all(n == ONE or x == y for x, y, n in zip(a, b, shape))


def _required(call: Call, role: str) -> Strided:
    operand = call.operand(role)
    view = strided(operand) if operand is not None else None
    if view is None:
        raise InternalError(f"{call.family}: operand {role} cannot be read where it lies")
    return view


def _emit_gemm(call: Call, context: CallContext, lines: Lines, epilogue: str) -> str:
    a, b, c = _required(call, "a"), _required(call, "b"), output_view(call)
    residual = strided(residual_operand) if (residual_operand := call.operand("residual")) is not None else None
    b_operand, a_operand = call.operand("b"), call.operand("a")
    assert b_operand is not None and a_operand is not None
    transposed = bool(call.attr("transpose_b"))
    k, n = a.shape[-1], (b.shape[-2] if transposed else b.shape[-1])
    k_stride, n_stride = (b.strides[-1], b.strides[-2]) if transposed else (b.strides[-2], b.strides[-1])
    batch_rank = len(b.shape) - 2
    stored = _panel_layout(b_operand, transposed)
    tensors = {"a": a, "c": c} | ({"residual": residual} if residual is not None else {})
    rank = len(c.shape)
    # With one matrix b for all, leading dimensions are rows as long as every tensor walks them evenly.
    rows_from = rank - 2
    if batch_rank == 0:
        while rows_from > 0 and all(collapsed_stride(t, rows_from - 1, rank - 1) is not None for t in tensors.values()):
            rows_from -= 1
    row_strides = {name: collapsed_stride(t, max(rows_from, 0), rank - 1) if rank > 1 else ZERO for name, t in tensors.items()}
    m = dim(1)
    for d in c.shape[max(rows_from, 0) : rank - 1]:
        m = m * d
    if stored == PANEL32 and b_operand.load.buffer.name in context.lies_plainly and _reads_rows_well(m, n):
        stored = None
    layout = ROW_MAJOR if stored is None else PANEL32
    outer = list(range(max(rows_from, 0)))
    batch_strides = {name: [t.strides[d] for d in outer] for name, t in tensors.items()}
    batch_strides["b"] = [_batch_stride(b, d, rank) for d in outer]
    extents, batch_strides = _merge_batch([c.shape[d] for d in outer], batch_strides)

    def text(d: Dim) -> str:
        return size_text(d, context.names)

    loops = max(len(extents) - 2, 0)
    lines.add("GemmF32 gemm;")
    offsets: dict[str, str] = {name: "" for name in batch_strides}
    for i in range(loops):
        lines.open(f"for (int64_t batch{i} = 0; batch{i} < {text(extents[i])}; ++batch{i})")
        for name, strides in batch_strides.items():
            if strides[i].terms:
                offsets[name] += f" + batch{i} * ({text(strides[i])})"
    inner_extents = extents[loops:]
    lines.add(f"gemm.m = {text(m)}, gemm.n = {text(n)}, gemm.k = {text(k)};")

    def address(role: str, view: Strided) -> str:
        operand = call.operand(role)
        assert operand is not None
        return _at(context.pointer(operand.load.buffer, ROW_MAJOR), view.offset, context) + offsets.get(role, "")

    lines.add(f"gemm.a = {address('a', a)}, gemm.lda = {text(row_strides['a'] or ZERO)};")
    if stored is not None:
        lines.add(f"gemm.b = {context.pointer(b_operand.load.buffer, stored)}, gemm.b_layout = kBPanel32;")
    else:
        is_transposed = k_stride == ONE or k == ONE
        row, kind = (n_stride, "kBTransposed") if is_transposed else (k_stride, "kBRowMajor")
        lines.add(f"gemm.b = {address('b', b)}, gemm.ldb = {text(row)}, gemm.b_layout = {kind};")
    if call.operand("bias") is not None:
        lines.add(f"gemm.bias = {address('bias', _required(call, 'bias'))};")
    if residual is not None:
        lines.add(f"gemm.residual = {address('residual', residual)}, gemm.ldr = {text(row_strides['residual'] or ZERO)};")
    for attr in ("activation", "post_activation"):
        if (name := call.attr(attr, "none")) != "none":
            lines.add(f"gemm.{attr} = {_ACTIVATIONS[name]};")
    lines.add(f"gemm.c = {context.pointer(call.outs[0], ROW_MAJOR)}{offsets['c']}, gemm.ldc = {text(row_strides['c'] or ZERO)};")
    start = 2 - len(inner_extents)
    for i, extent in enumerate(inner_extents):
        lines.add(f"gemm.batch[{start + i}] = {text(extent)};")
        for name, field in (("a", "a_batch"), ("b", "b_batch"), ("c", "c_batch"), ("residual", "residual_batch")):
            if name in batch_strides and batch_strides[name][loops + i].terms:
                lines.add(f"gemm.{field}[{start + i}] = {text(batch_strides[name][loops + i])};")
    if epilogue:
        lines.add(f"gemm.epilogue = {epilogue}, gemm.epilogue_ctx = &task;")
    lines.add("gemm_f32(frame, gemm);")
    for _ in range(loops):
        lines.close()
    unpacked = "kBPanel32" if layout == PANEL32 else ("kBTransposed" if k_stride == ONE or k == ONE else "kBRowMajor")
    return f"gemm_f32_scratch_bytes({text(m)}, {text(n)}, {text(k)}, {unpacked})"


def _reads_rows_well(m: Dim, n: Dim) -> bool:
    """Whether the product takes dot_kernel (kernels/gemm/gemm_f32.cpp), which reads the rows of an [n, k] weight as fast as panels: an embedding
    that is a language model's last layer too is then stored once."""
    return m.is_const and m.value <= _ROW_PRODUCTS and n.is_const and n.value >= _PANEL


def _panel_layout(b: Operand, transposed: bool) -> int | None:
    """PANEL32 where the constant itself is [n, k], PANEL32_T where it is [k, n]; None where b is no whole constant."""
    layout = packed_layout(b)
    if layout == ROW_MAJOR:
        return None
    # `layout` says how the operand as given relates to the constant; the kernel wants panels over n.
    return layout if transposed else (PANEL32_T if layout == PANEL32 else PANEL32)


def _batch_stride(b: Strided, d: int, rank: int) -> Dim:
    position = d - (rank - len(b.shape))
    return ZERO if position < 0 or b.shape[position] == ONE else b.strides[position]


def _merge_batch(extents: list[Dim], strides: dict[str, list[Dim]]) -> tuple[list[Dim], dict[str, list[Dim]]]:
    """Drops dimensions of 1 and joins neighbours that all tensors walk evenly."""
    kept = [i for i, e in enumerate(extents) if e != ONE]
    merged: list[Dim] = []
    out: dict[str, list[Dim]] = {name: [] for name in strides}
    for i in kept:
        if merged and all(out[name][-1] == strides[name][i] * extents[i] for name in strides):
            merged[-1] = merged[-1] * extents[i]
            for name in strides:
                out[name][-1] = strides[name][i]
        else:
            merged.append(extents[i])
            for name in strides:
                out[name].append(strides[name][i])
    return merged, out


def _at(pointer: str, offset: Dim, context: CallContext) -> str:
    return f"{pointer} + {size_text(offset, context.names)}" if offset.terms else pointer


def _emit_attention(call: Call, context: CallContext, lines: Lines) -> str:
    q, k, v, out = _required(call, "q"), _required(call, "k"), _required(call, "v"), output_view(call)

    def text(d: Dim) -> str:
        return size_text(d, context.names)

    lines.add("AttentionF32 attention;")
    for name, view in (("q", q), ("k", k), ("v", v)):
        operand = call.operand(name)
        assert operand is not None
        lines.add(f"attention.{name} = {_at(context.pointer(operand.load.buffer, ROW_MAJOR), view.offset, context)};")
        _strides(f"attention.{name}_strides", view, text, lines)
    lines.add(f"attention.out = {context.pointer(call.outs[0], ROW_MAJOR)};")
    _strides("attention.out_strides", out, text, lines)
    if (mask := call.operand("mask")) is not None:
        view = _required(call, "mask")
        kind = "kMaskBool" if mask.load.dtype is DType.BOOL else "kMaskFloat"
        lines.add(f"attention.mask = {_at(context.pointer(mask.load.buffer, ROW_MAJOR), view.offset, context)}, attention.mask_kind = {kind};")
        broadcast = tuple(ZERO if n == ONE else s for s, n in zip(view.strides, view.shape))
        padded = Strided(view.offset, view.shape, (ZERO,) * (4 - len(broadcast)) + broadcast)
        _strides("attention.mask_strides", padded, text, lines)
    lines.add(f"attention.batch = {text(q.shape[0])}, attention.heads = {text(q.shape[1])}, attention.kv_heads = {text(k.shape[1])};")
    lines.add(f"attention.queries = {text(q.shape[2])}, attention.keys = {text(k.shape[2])};")
    lines.add(f"attention.head_dim = {text(q.shape[3])}, attention.value_dim = {text(v.shape[3])};")
    lines.add(f"attention.scale = {float(call.attr('scale'))!r}f, attention.is_causal = {int(bool(call.attr('causal')))};")
    lines.add("attention_f32(frame, attention);")
    return f"attention_f32_scratch_bytes({text(q.shape[3])}, {text(v.shape[3])})"


def _strides(target: str, view: Strided, text: Callable[[Dim], str], lines: Lines) -> None:
    values = ", ".join(text(s) for s in view.strides)
    lines.add(f"set_strides({target}, {values});")


@dataclass(frozen=True)
class _Extent:
    """One dimension of a convolution's images: sizes, window, and the strides of its operands by role."""

    size: Dim
    out_size: Dim
    taps: Dim
    stride: int
    padding: int
    dilation: int
    strides: Mapping[str, Dim]

    @property
    def is_unit(self) -> bool:
        return self.size == self.out_size == self.taps == ONE and self.padding == 0


def _emit_conv(call: Call, context: CallContext, lines: Lines, epilogue: str) -> str:
    """The struct is filled in twice: here with its pointers, and as far as sizes go for the scratch that it needs."""
    x, out = _required(call, "x"), output_view(call)
    w = call.operand("w")
    assert w is not None
    groups, transposed = int(call.attr("groups")), bool(call.attr("transposed", False))
    view = strided(w)
    if w.load.buffer.kind != "weight" or view is None or view.offset.terms or view.shape != w.load.buffer.shape or w.load.buffer.order is not None:
        raise InternalError(f"conv: the weights {w.load.buffer} are no whole constant")
    views = {"x": x, "out": out} | ({"residual": _required(call, "residual")} if call.operand("residual") is not None else {})

    def text(d: Dim) -> str:
        return size_text(d, context.names)

    extents = [
        _Extent(x.shape[d], out.shape[d], w.shape[d], stride, padding, dilation, {role: v.strides[d] for role, v in views.items()})
        for d, (stride, padding, dilation) in enumerate(zip(call.attr("stride"), call.attr("padding"), call.attr("dilation")), start=2)
    ]
    if len(extents) == 2 and extents[1].is_unit:
        extents = extents[:1]  # a column is a signal: the kernel's tiles lie along the last dimension
    nothing = _Extent(ONE, ONE, ONE, 1, 0, 1, dict.fromkeys(views, ZERO))
    depth, height, width = [nothing] * (3 - len(extents)) + extents
    is_deep = len(extents) == 3
    is_depthwise = w.shape[1] == ONE and x.shape[1] == dim(groups) and groups > 1 and not transposed and not is_deep
    layout = CONV_DEPTHWISE if is_depthwise else CONV_TRANSPOSE_PANEL32 if transposed else CONV_PANEL32

    def set_image(role: str) -> str:
        batch, channel = views[role].strides[:2]
        channels_last = ", ".join(text(d) for d in (batch, height.strides[role], width.strides[role], channel))
        return f"set_strides(conv.{role}_strides, {channels_last});" + (f" conv.{role}_stride_d = {text(depth.strides[role])};" if is_deep else "")

    sizes = [
        set_image("x"),
        f"conv.w_layout = {'kConvDepthwise' if is_depthwise else 'kConvPanel32'}, conv.groups = {groups};",
        f"conv.batch = {text(x.shape[0])}, conv.in_c = {text(x.shape[1])}, conv.out_c = {text(out.shape[1])};",
    ]
    for letter, e in (("d", depth), ("h", height), ("w", width)):
        if letter != "d" or is_deep:
            sizes.append(f"conv.in_{letter} = {text(e.size)}, conv.out_{letter} = {text(e.out_size)}, conv.kernel_{letter} = {text(e.taps)};")
            sizes.append(f"conv.stride_{letter} = {e.stride}, conv.pad_{letter} = {e.padding}, conv.dilation_{letter} = {e.dilation};")
    kind, function = ("ConvTransposeF32", "conv_transpose_f32") if transposed else ("ConvF32", "conv_f32")
    lines.add(f"{kind} conv;")
    for line in sizes:
        lines.add(line)

    def address(role: str, view: Strided) -> str:
        operand = call.operand(role)
        assert operand is not None
        return _at(context.pointer(operand.load.buffer, ROW_MAJOR), view.offset, context)

    lines.add(f"conv.x = {address('x', x)};")
    lines.add(f"conv.w = {context.pointer(w.load.buffer, layout)};")
    if call.operand("bias") is not None:
        lines.add(f"conv.bias = {address('bias', _required(call, 'bias'))};")
    if "residual" in views:
        lines.add(f"conv.residual = {address('residual', views['residual'])};")
        lines.add(set_image("residual"))
    for attr in ("activation", "post_activation"):
        if (name := call.attr(attr, "none")) != "none":
            lines.add(f"conv.{attr} = {_ACTIVATIONS[name]};")
    lines.add(f"conv.out = {context.pointer(call.outs[0], ROW_MAJOR)};")
    lines.add(set_image("out"))
    if epilogue:
        lines.add(f"conv.epilogue = {epilogue}, conv.epilogue_ctx = &task;")
    lines.add(f"{function}(frame, conv);")
    return f"[&] {{ {kind} conv; {' '.join(sizes)} return {function}_scratch_bytes(conv); }}()"


def _emit_sort(call: Call, context: CallContext, lines: Lines) -> str:
    x, operand = _required(call, "x"), call.operand("x")
    assert operand is not None
    values = call.outs[0]

    def text(d: Dim) -> str:
        return size_text(d, context.names)

    n, count, dtype = text(x.shape[-1]), text(values.shape[-1]), values.dtype.number
    given = [_at(context.pointer(operand.load.buffer, ROW_MAJOR), x.offset, context), *(context.pointer(out, ROW_MAJOR) for out in call.outs)]
    given += [text(product(x.shape[:-1])), n, count, str(dtype), str(int(bool(call.attr("descending"))))]
    lines.add("// x, values, indices, rows, n, count, dtype, descending")
    lines.add(f"SEALIFT_NS::sort_rows(frame, {{{', '.join(given)}}});")
    return f"SEALIFT_NS::sort_rows_scratch_bytes({n}, {count}, {dtype})"


def _emit_bags(call: Call, context: CallContext, lines: Lines) -> str:
    table, out = _required(call, "table"), call.outs[0]

    def text(d: Dim) -> str:
        return size_text(d, context.names)

    lines.add("Bags bags;")
    for role in ("table", "indices", "offsets", "weights"):
        if (operand := call.operand(role)) is not None:
            lines.add(f"bags.{role} = {_at(context.pointer(operand.load.buffer, ROW_MAJOR), _required(call, role).offset, context)};")
    indices, offsets = call.operand("indices"), call.operand("offsets")
    assert indices is not None and offsets is not None
    strides = f"bags.table_stride = {text(table.strides[0])}, bags.out_stride = {text(out.strides[0])}"
    lines.add(f"bags.out = {context.pointer(out, ROW_MAJOR)}, {strides};")
    lines.add(f"bags.rows = {text(table.shape[0])}, bags.width = {text(table.shape[1])};")
    lines.add(f"bags.count = {text(indices.shape[0])}, bags.bags = {text(out.shape[0])}, bags.padding_idx = {int(call.attr('padding_idx'))};")
    dtypes = f"bags.dtype = {out.dtype.number}, bags.index_dtype = {indices.load.dtype.number}, bags.offset_dtype = {offsets.load.dtype.number}"
    lines.add(f"{dtypes};")
    lines.add(f"bags.mode = {int(call.attr('mode'))}, bags.has_end = {int(bool(call.attr('include_last_offset')))};")
    lines.add("embedding_bags(frame, bags);")
    return "0"


_CELLS = {"lstm": "kCellLstm", "gru": "kCellGru", "tanh": "kCellTanh", "relu": "kCellRelu"}


def _emit_recurrent(call: Call, context: CallContext, lines: Lines) -> str:
    cell, batch_first = str(call.attr("cell")), bool(call.attr("batch_first"))
    outs = dict(zip(("out", "hn", "cn", "raw") if cell == "lstm" else ("out", "hn"), call.outs))
    h0, out = _required(call, "h0"), Strided(ZERO, outs["out"].shape, outs["out"].strides)

    def text(d: Dim) -> str:
        return size_text(d, context.names)

    def address(role: str, layout: int = ROW_MAJOR) -> str:
        operand = call.operand(role)
        assert operand is not None
        return _at(context.pointer(operand.load.buffer, layout), _required(call, role).offset, context)

    def panels(role: str, layout: int) -> str:
        """A matrix that is a constant is stored in panels; any other comes in panels already."""
        operand = call.operand(role)
        assert operand is not None
        return address(role, layout if operand.load.buffer.kind == "weight" and len(operand.shape) == 2 else ROW_MAJOR)

    steps_at, batch_at = (1, 0) if batch_first else (0, 1)
    lines.add("RecurrentF32 layer;")
    for d, suffix in enumerate(("", "_reverse")):
        if call.operand("gates" + suffix) is None:
            continue
        gates, target = _required(call, "gates" + suffix), f"layer.direction[{d}]"
        strides = f"{target}.gates_step = {text(gates.strides[0])}, {target}.gates_batch = {text(gates.strides[1])}"
        lines.add(f"{target}.gates = {address('gates' + suffix)}, {strides};")
        lines.add(f"{target}.w = {panels('w' + suffix, CONV_PANEL32)};")
        if call.operand("bias" + suffix) is not None:
            lines.add(f"{target}.bias = {address('bias' + suffix)};")
        if call.operand("w_proj" + suffix) is not None:
            lines.add(f"{target}.w_proj = {panels('w_proj' + suffix, PANEL32)};")
    lines.add(f"layer.h0 = {address('h0')};")
    if call.operand("c0") is not None:
        lines.add(f"layer.c0 = {address('c0')};")
    for name, buffer in outs.items():
        lines.add(f"layer.{name} = {context.pointer(buffer, ROW_MAJOR)};")
    lines.add(f"layer.out_step = {text(out.strides[steps_at])}, layer.out_batch = {text(out.strides[batch_at])};")
    hidden = call.operand("gates").shape[-1] // int(call.attr("groups"))  # type: ignore[union-attr]
    lines.add(f"layer.steps = {text(out.shape[steps_at])}, layer.batch = {text(out.shape[batch_at])};")
    lines.add(f"layer.hidden = {text(hidden)}, layer.size = {text(h0.shape[2])};")
    lines.add(f"layer.cell = {_CELLS[cell]}, layer.directions = {text(h0.shape[0])};")
    lines.add("recurrent_f32(frame, layer);")
    return "0"
