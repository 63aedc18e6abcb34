"""Runs a package's code one kernel after another and shows what each leaves behind: intermediate values, without compiling anything anew.

    open_recorded(path).run(inputs, lambda kernel, place, array: print(kernel.name, place.value, array.mean()))

It is a small host of its own for the boundary of contracts/sealift_model.h: one thread, every kernel recorded, buffers that NumPy sees.
Where a kernel's results lie stands in the manifest. The speed is that of one thread; the code is the package's own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sealift import _runtime
from sealift.errors import IsaError, LibraryError, PackageError, ShapeError, from_code
from sealift.ir.dim import Dim, dim, parse_dim, sym
from sealift.ir.dtype import DType, parse_dtype
from sealift.package.read import PackageInfo, read_member, verify_package

Array = NDArray[Any]

ABI_VERSION = 1
ISAS = ("baseline", "avx2", "avx512", "amx")
STORED: dict[DType, Any] = {  # bfloat16, which NumPy has not, as its bits
    DType.F32: np.float32, DType.F64: np.float64, DType.I32: np.int32, DType.I64: np.int64, DType.BOOL: np.bool_, DType.BF16: np.uint16,
    DType.F16: np.float16, DType.I8: np.int8, DType.I16: np.int16, DType.U8: np.uint8, DType.C64: np.complex64,
}  # fmt: skip
_BY_NUMBER = {d.number: d for d in DType}
_ALIGN_BYTES = 64
_RUN_ERRORS = {1: "E-RUN-001", 2: "E-RUN-002", 3: "E-RUN-003"}


# ---- contracts/sealift_model.h in ctypes -------------------------------------------------------------------------------------------


def _fields(text: str) -> list[tuple[str, Any]]:
    """ "i32 rank; ptr shape" as ctypes fields."""
    kinds = {
        "i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64, "ptr": ctypes.c_void_p, "str": ctypes.c_char_p
    }  # fmt: skip
    return [(name, kinds[kind]) for kind, name in (part.split() for part in text.split(";"))]


class _TensorSpec(ctypes.Structure):
    _fields_ = _fields("str name; i32 dtype; i32 rank; ptr shape; ptr shape_text; ptr order; i32 optional; i32 alias_input")


class _SymbolSpec(ctypes.Structure):
    _fields_ = _fields("str name; i64 min; i64 max; i32 input; i32 dim; i64 scale; i64 shift")


class _WeightSpec(ctypes.Structure):
    _fields_ = _fields("i32 constant; i32 layout; u64 offset_bytes; u64 size_bytes; i32 groups")


class _StateSpec(ctypes.Structure):
    _fields_ = _fields("str name; str fqn; i32 dtype; i32 rank; ptr shape; i32 initial_weight")


class _Frame(ctypes.Structure):
    _fields_ = _fields(
        "ptr host; ptr host_context; ptr sizes; ptr inputs; ptr outputs; ptr weights; ptr states; ptr arena; ptr scratch;"
        "i64 scratch_stride_bytes; i32 num_workers; i32 error_kernel; i64 countdown; i32 error; i32 reserved; i64 error_value; i64 error_bound"
    )


_Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
_ParallelFor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_RecordBegin = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(_Frame), ctypes.c_int32)
_RecordEnd = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Frame), ctypes.c_int32, ctypes.c_uint64)
_Run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Frame))
_ComputeSizes = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Host(ctypes.Structure):
    _fields_ = [
        ("abi_version", ctypes.c_uint32), ("struct_bytes", ctypes.c_uint32), ("parallel_for", _ParallelFor), ("record_begin", _RecordBegin),
        ("record_end", _RecordEnd),
    ]  # fmt: skip


class _Api(ctypes.Structure):
    _fields_ = [
        *_fields("u32 abi_version; u32 struct_bytes; str name; str compiler"),
        *_fields("i32 num_inputs; i32 num_outputs; i32 num_symbols; i32 num_sizes"),
        *_fields("i32 num_constants; i32 num_weights; i32 num_states; i32 num_kernels"),
        ("inputs", ctypes.POINTER(_TensorSpec)), ("outputs", ctypes.POINTER(_TensorSpec)), ("symbols", ctypes.POINTER(_SymbolSpec)),
        ("constants", ctypes.c_void_p), ("weights", ctypes.POINTER(_WeightSpec)), ("states", ctypes.POINTER(_StateSpec)),
        ("kernels", ctypes.c_void_p), ("in_spec", ctypes.c_char_p), ("out_spec", ctypes.c_char_p), ("weights_bytes", ctypes.c_uint64),
        ("arena_bytes_slot", ctypes.c_int32), ("scratch_bytes_slot", ctypes.c_int32), ("isa_mask", ctypes.c_uint32),
        ("compute_sizes", _ComputeSizes), ("run", ctypes.c_void_p * 4),
    ]  # fmt: skip


# ---- what a kernel leaves behind ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where one result of a kernel lies: at `offset` bytes in the arena, or in output or state `position`."""

    value: str  # the exported program's value, or a name of the compiler's
    dtype: DType
    shape: tuple[Dim, ...]
    order: tuple[int, ...] | None
    where: str  # arena | output | state
    offset: Dim
    position: int


@dataclass(frozen=True)
class RecordedKernel:
    id: int
    name: str
    ops: tuple[str, ...]
    origin: tuple[str, ...]
    places: tuple[Place, ...]


OnValue = Callable[[RecordedKernel, Place, Array], None]


@dataclass
class RecordedModel:
    """A package's model in this process, to be run by this host. States live from run to run, as in a context."""

    path: str
    info: PackageInfo
    name: str
    isa: str
    kernels: tuple[RecordedKernel, ...]
    _api: _Api
    _weights: Array
    _states: list[Array] = field(default_factory=list)
    _keep: tuple[Any, ...] = ()

    def run(self, inputs: Sequence[Array], on_value: OnValue) -> list[Array | None]:
        """The outputs, in the exported order; `on_value` sees each result of each kernel when the kernel ends, in memory that the next
        kernels may use again: copy what you keep. Errors: E-INPUT-003, E-RUN-*."""
        return _run(self, inputs, on_value)

    def reset(self) -> None:
        self._states = _initial_states(self._api, self._weights)


def open_recorded(path: str | os.PathLike[str], model: str | None = None, isa: str | None = None) -> RecordedModel:
    """Loads a model's library: that runs nothing yet but its constructors. Errors: those of load(); E-PACKAGE-001 for a package whose
    manifest does not say where results lie (compiled before sealift wrote that)."""
    info = verify_package(path)
    entry = info.model(model)
    name = str(entry["name"])
    library = read_member(path, f"data/aotinductor/{name}/{name}.wrapper.so")
    handle = os.memfd_create(f"sealift-{name}")  # stays open, as the library stays loaded: dlopen knows a library by its path, this number
    _write_all(handle, library)
    try:
        loaded = ctypes.CDLL(f"/proc/self/fd/{handle}")
    except OSError as error:
        os.close(handle)
        raise LibraryError(f"the library of model {name!r} does not load: {error}; help: `sealift doctor`") from error
    loaded.sealift_model_get_api.restype = ctypes.POINTER(_Api)
    table = loaded.sealift_model_get_api(ctypes.c_uint32(ABI_VERSION))
    if not table:
        raise LibraryError(f"model {name!r} was built for another runtime; help: compile it again")
    api: _Api = table.contents
    kernels = tuple(_kernel(k, entry) for k in entry.get("kernels", []))
    if kernels and not any(k.places for k in kernels):
        raise PackageError(f"{path} does not say where its kernels' results lie; help: compile it again with this sealift")
    weights = _weights(info, name)
    return RecordedModel(os.fspath(path), info, name, _pick_isa(api, isa), kernels, api, weights, _initial_states(api, weights), (loaded, table))


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _kernel(raw: dict[str, Any], entry: dict[str, Any]) -> RecordedKernel:
    symbols = {name: sym(name, lo, hi) for name, (lo, hi) in entry.get("sizes", {}).items()}
    places = []
    for w in raw.get("writes", []):
        where = next(k for k in ("arena", "output", "state") if k in w)
        offset = parse_dim(w["arena"], symbols) if where == "arena" else dim(0)
        shape = tuple(parse_dim(text, symbols) for text in w["shape"])
        order = tuple(w["order"]) if "order" in w else None
        places.append(Place(w["value"], parse_dtype(w["dtype"]), shape, order, where, offset, 0 if where == "arena" else int(w[where])))
    return RecordedKernel(raw["id"], raw["name"], tuple(raw["ops"]), tuple(raw["origin"]), tuple(places))


def _pick_isa(api: _Api, wanted: str | None) -> str:
    able = _runtime.machine_isas() & api.isa_mask
    built = [name for i, name in enumerate(ISAS) if able >> i & 1 and api.run[i]]
    if wanted is not None and wanted not in built:
        raise IsaError(f"isa={wanted!r} is not both built and executable here; help: choose from {', '.join(built)}")
    if not built:
        raise IsaError("built for no instruction set that this machine has; help: compile with isas=('baseline', ...)")
    return wanted or built[-1]


def _weights(info: PackageInfo, name: str) -> Array:
    files = {m.name: m for m in info.members}
    member = files.get(f"data/aotinductor/{name}/{name}.weights.bin") or files.get("data/constants/sealift.weights.bin")  # shared by several
    if member is None or not member.size_bytes:
        return np.zeros(0, np.uint8)
    return np.memmap(info.path, np.uint8, "c", offset=member.offset, shape=(member.size_bytes,))  # copy on write: the file stays as it is


def _initial_states(api: _Api, weights: Array) -> list[Array]:
    found: list[Array] = []
    for i in range(api.num_states):
        spec = api.states[i]
        stored = api.weights[spec.initial_weight]
        block = _aligned(stored.size_bytes)
        block[:] = weights[stored.offset_bytes : stored.offset_bytes + stored.size_bytes]
        found.append(block)
    return found


# ---- one run -----------------------------------------------------------------------------------------------------------------------


def _run(model: RecordedModel, inputs: Sequence[Array], on_value: OnValue) -> list[Array | None]:
    api = model._api
    if len(inputs) != api.num_inputs:
        raise from_code("E-INPUT-001", f"[E-INPUT-001] {len(inputs)} inputs given, model {model.name!r} takes {api.num_inputs}")
    given = [_as_input(a, api.inputs[i]) for i, a in enumerate(inputs)]
    sizes = _sizes(api, given)
    symbols = {api.symbols[i].name.decode(): int(sizes[i]) for i in range(api.num_symbols)}
    outputs = [_make_output(api.outputs[i], sizes) for i in range(api.num_outputs)]
    weights = [model._weights[api.weights[i].offset_bytes :] for i in range(api.num_weights)]
    arena, scratch = _aligned(int(sizes[api.arena_bytes_slot])), _aligned(int(sizes[api.scratch_bytes_slot]))
    raised: list[BaseException] = []

    def parallel_for(frame: int, count: int, grain: int, task: int, arg: int) -> None:
        if count > 0:
            _Task(task)(arg, 0, count, 0)

    def record_begin(frame: Any, kernel: int) -> int:
        frame.contents.countdown = 1
        return 1

    def record_end(frame: Any, kernel: int, token: int) -> None:
        if raised or frame.contents.error:
            return
        try:
            recorded = model.kernels[kernel]
            for place in recorded.places:
                source = arena if place.where == "arena" else outputs[place.position] if place.where == "output" else model._states[place.position]
                if source is not None:
                    on_value(recorded, place, _view(source, place, symbols))
        except BaseException as error:  # an exception cannot pass through the library's frames
            raised.append(error)

    host = _Host(ABI_VERSION, ctypes.sizeof(_Host), _ParallelFor(parallel_for), _RecordBegin(record_begin), _RecordEnd(record_end))
    tables = [_pointers(given), _pointers(outputs), _pointers(weights), _pointers(model._states)]
    frame = _Frame(
        ctypes.addressof(host), None, sizes.ctypes.data, *(ctypes.addressof(t) for t in tables), arena.ctypes.data, scratch.ctypes.data,
        scratch.nbytes, 1, -1, 1, 0, 0, 0, 0,
    )  # fmt: skip
    status = _Run(api.run[ISAS.index(model.isa)])(ctypes.byref(frame))
    if raised:
        raise raised[0]
    if status or frame.error:
        name = model.kernels[frame.error_kernel].name if 0 <= frame.error_kernel < len(model.kernels) else "?"
        code = _RUN_ERRORS.get(frame.error, "E-INTERNAL-001")
        raise from_code(code, f"[{code}] kernel {name}: value {frame.error_value}, bound {frame.error_bound}")
    results: list[Array | None] = []
    for i, made in enumerate(outputs):
        spec = api.outputs[i]
        if made is None:
            results.append(given[spec.alias_input] if spec.alias_input >= 0 else None)
            continue
        shape = _ints(spec.shape, spec.rank, sizes)
        order = tuple(ctypes.cast(spec.order, ctypes.POINTER(ctypes.c_int32))[: spec.rank]) if spec.order else None
        results.append(_logical(made, _BY_NUMBER[spec.dtype], shape, order))
    return results


def _as_input(array: Array, spec: _TensorSpec) -> Array:
    dtype = _BY_NUMBER[spec.dtype]
    name = spec.name.decode()
    if array.dtype != STORED[dtype]:
        raise from_code("E-INPUT-002", f"[E-INPUT-002] input {name!r}: {array.dtype} given, the model takes {dtype.torch_name}")
    if array.ndim != spec.rank:
        raise ShapeError(f"input {name!r}: rank {array.ndim} given, the model takes {spec.rank}")
    block = _aligned(array.nbytes)
    typed = block[: array.nbytes].view(array.dtype).reshape(array.shape)
    typed[...] = array
    return typed


def _sizes(api: _Api, inputs: Sequence[Array]) -> NDArray[np.int64]:
    sizes = np.zeros(max(api.num_sizes, 1), np.int64)
    for i in range(api.num_symbols):
        spec = api.symbols[i]
        given, scale = inputs[spec.input].shape[spec.dim], spec.scale or 1
        value, rest = divmod(given - spec.shift, scale)
        if rest or not spec.min <= value <= spec.max:
            raise ShapeError(f"input {api.inputs[spec.input].name.decode()!r}: size {given}, {spec.name.decode()} is {spec.min}..{spec.max}")
        sizes[i] = value
    api.compute_sizes(sizes.ctypes.data)
    for i, array in enumerate(inputs):
        wanted = _ints(api.inputs[i].shape, api.inputs[i].rank, sizes)
        if array.shape != wanted:
            raise ShapeError(f"input {api.inputs[i].name.decode()!r}: shape {list(array.shape)} given, the model takes {list(wanted)} here")
    return sizes


def _make_output(spec: _TensorSpec, sizes: NDArray[np.int64]) -> Array | None:
    if spec.optional or spec.alias_input >= 0:
        return None
    count = int(np.prod(_ints(spec.shape, spec.rank, sizes), dtype=np.int64))
    return _aligned(count * _BY_NUMBER[spec.dtype].size_bytes)


def _ints(slots: int | None, rank: int, sizes: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(sizes[s]) for s in ctypes.cast(slots, ctypes.POINTER(ctypes.c_int32))[:rank]) if rank and slots else ()


def _view(block: Array, place: Place, symbols: dict[str, int]) -> Array:
    offset = place.offset.evaluate(symbols)
    return _logical(block[offset:], place.dtype, tuple(d.evaluate(symbols) for d in place.shape), place.order)


def _logical(block: Array, dtype: DType, shape: tuple[int, ...], order: tuple[int, ...] | None) -> Array:
    """The tensor that lies at the start of `block`, dense in `order`, as a view with its dimensions as they stand."""
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.size_bytes
    typed: Array = block[:size_bytes].view(STORED[dtype])
    placed: Array = typed.reshape(shape) if order is None else typed.reshape([shape[d] for d in order]).transpose(np.argsort(order))
    return placed


def _aligned(size_bytes: int) -> Array:
    raw = np.zeros(max(size_bytes, 1) + _ALIGN_BYTES, np.uint8)
    shift = -raw.ctypes.data % _ALIGN_BYTES
    return raw[shift : shift + max(size_bytes, 1)]


def _pointers(arrays: Sequence[Array | None]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*[None if a is None else a.ctypes.data for a in arrays])
