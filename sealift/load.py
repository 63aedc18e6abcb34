"""The loaded model. Imports numpy and the native module, never torch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO

from sealift import _runtime
from sealift.errors import ArgumentError, InputCountError
from sealift.package.errors import ModelNameError
from sealift.tree import Tree, flatten, parse_tree, unflatten

_ISAS = ("baseline", "avx2", "avx512", "amx")
_VERIFY = {"code": 0, "all": 1}
_DTYPES = {  # (DLPack code, bits)
    (2, 32): "float32",
    (2, 64): "float64",
    (2, 16): "float16",
    (4, 16): "bfloat16",
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (6, 8): "bool",
    (5, 64): "complex64",
}
_NUMBERS = {"int": int, "float": float, "bool": bool}  # kinds of outputs that are no tensors
_SINGLE, _TUPLE, _LIST, _OTHER = range(4)  # bindings/model.h: enum class Structure


@dataclass(frozen=True)
class Dim:
    """One size: `text` as the user declared it ("batch", "2*seq", "10"), and what it may be."""

    text: str
    min: int
    max: int

    def __str__(self) -> str:
        return self.text if self.min == self.max else f"{self.text}={self.min}..{self.max}"


@dataclass(frozen=True)
class TensorInfo:
    name: str
    dtype: str
    shape: tuple[Dim, ...]
    is_none: bool = False  # an output where the model returns None
    is_changed: bool = False  # an input that the model writes into, as the module does in eager

    def __str__(self) -> str:
        if self.is_none:
            return f"{self.name}: None"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]" + (" (changed in place)" if self.is_changed else "")


@dataclass(frozen=True)
class Kernel:
    id: int
    name: str
    ops: str  # the ATen operators it stands for
    origin: str  # the user's file:line and module path


@dataclass(frozen=True)
class Constant:
    fqn: str
    dtype: str
    shape: tuple[int, ...]


def load(
    path: str | os.PathLike[str] | bytes | bytearray | BinaryIO,
    model: str | None = None,
    num_threads: int | None = None,
    isa: str | None = None,
    verify: str = "all",
) -> Model:
    """Reads, verifies and loads one model of a package. Loading a package lets its code run: load what you trust.

    path: the file; or its bytes, or a file opened for reading, which are copied into memory that no other process shares.
    model: its name; None for the only one, else the one called "model".
    num_threads: what a run may use, the caller's thread included; None for every core the process may use.
    isa: "baseline", "avx2", "avx512" or "amx"; None for the best that both the package and the machine have.
    verify: "all", or "code" to skip the weights' checksum.
    Errors: FileError, PackageError, IntegrityError, VersionError, ModelNameError, IsaError, LibraryError."""
    if not isinstance(path, (str, os.PathLike)):
        return _load_bytes(path, model, num_threads, isa, verify)
    arguments = (_as_path(path), model, *_open_options(num_threads, isa, verify))
    if os.environ.get("SEALIFT_DEBUG"):
        from sealift.debug_model import DebugModel
        from sealift.environment import read_debug

        debug = read_debug(os.environ)
        return DebugModel(debug, *arguments) if debug.looks_inside else Model(*arguments)
    loaded = Model(*arguments)
    watching = sys.modules.get("sealift.observe.metadata")  # where the program watches model files
    if watching is not None:
        watching.note_file("loaded", "sealift", os.fspath(path))
    return loaded


def _load_bytes(source: Any, model: str | None, num_threads: int | None, isa: str | None, verify: str) -> Model:
    data = source.read() if hasattr(source, "read") else source
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ArgumentError(f"path is a {type(source).__name__}; help: a path, the package's bytes, or a file opened with open(path, 'rb')")
    handle = os.memfd_create("sealift.pt2")
    with open(handle, "wb") as file:  # mapped by the runtime, so it may go once the model is loaded
        file.write(data)
        file.flush()
        return load(f"/proc/self/fd/{handle}", model, num_threads, isa, verify)


def load_package(path: str | os.PathLike[str], num_threads: int | None = None, isa: str | None = None, verify: str = "all") -> Package:
    """Every model of a package, by name; the file is read and verified once. Arguments and errors as load()'s."""
    return Package(_as_path(path), *_open_options(num_threads, isa, verify))


def _as_path(path: str | os.PathLike[str]) -> str:
    """For C, where a string ends at its first NUL."""
    text = os.fspath(path)
    if "\0" in text:
        raise ArgumentError(f"path={text!r} holds a NUL character, which no file's name does; help: pass the package's path")
    return text


def _open_options(num_threads: int | None, isa: str | None, verify: str) -> tuple[int, int, int]:
    if verify not in _VERIFY:
        raise ArgumentError(f"verify={verify!r}; help: one of {', '.join(map(repr, _VERIFY))}")
    if isa is not None and isa not in _ISAS:
        raise ArgumentError(f"isa={isa!r}; help: one of {', '.join(map(repr, _ISAS))}")
    if num_threads is not None and (isinstance(num_threads, bool) or not hasattr(num_threads, "__index__")):
        raise ArgumentError(f"num_threads={num_threads!r}; help: a whole number, or None for every core")
    if num_threads is not None and num_threads < 1:
        raise ArgumentError(f"num_threads={num_threads}; help: at least 1, or None for every core")
    return num_threads or 0, -1 if isa is None else _ISAS.index(isa), _VERIFY[verify]


class Model(_runtime.Model):
    """Call it with the tensors of the exported call: NumPy arrays, torch tensors or anything with DLPack; the outputs are of the first
    input's kind. `out=` gives preallocated outputs. Any number of threads may call it; a model with state runs one call at a time."""

    def __init__(self, path: str, name: str | None = None, num_threads: int = 0, isa: int = -1, verify: int = 1) -> None:
        super().__init__(path, name, num_threads, isa, verify)
        self._read_structure()

    @classmethod
    def _of_package(cls, package: _runtime.Package, index: int) -> Model:
        model = cls.__new__(cls)
        _runtime.Model.__init__(model, package, index)
        model._read_structure()
        return model

    def _read_structure(self) -> None:
        self._in_tree = parse_tree(self._input_spec)
        self._out_tree = parse_tree(self._output_spec)
        names = [info[0] for info in self._inputs]
        positional, keywords = _parameters(self._in_tree)
        is_flat = all(c.is_leaf for c in (*positional, *keywords.values())) and len(positional) + len(keywords) == len(names)
        self._number_kinds = [_NUMBERS.get(kind) for kind in self._entry.get("output_kinds", [])]
        has_numbers = any(kind is not None for kind in self._number_kinds)
        out_kind = _OTHER if has_numbers else _structure(self._out_tree, len(self._outputs))
        arguments = (*names[: len(positional)], *keywords)
        self._set_structure(is_flat, arguments, out_kind, bool(self._entry.get("states")))

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(replace(_info(i), is_changed=changed) for i, changed in zip(self._inputs, self._changed))

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return tuple(_info(i) for i in self._outputs)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(Kernel(*k) for k in self._kernels)

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """What load_constants can replace."""
        return tuple(Constant(fqn, _dtype(dtype), shape) for fqn, dtype, shape in self._constants)

    @cached_property
    def metadata(self) -> dict[str, str]:
        """What the package's maker gave as metadata."""
        return {str(k): str(v) for k, v in self.manifest.get("metadata", {}).items()}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """sealift/manifest.json."""
        return dict(json.loads(self._member("sealift/manifest.json") or b"{}"))

    @property
    def _entry(self) -> dict[str, Any]:
        return next((m for m in self.manifest.get("models", []) if m.get("name") == self.name), {})

    def member(self, name: str) -> bytes | None:
        """The bytes of a member of the package ("extra/labels.txt"), None if there is none."""
        return self._member(name)

    def get_constant_fqns(self) -> list[str]:
        return [c.fqn for c in self.constants]

    def load_constants(self, values: Mapping[str, Any], *, swap: bool = True) -> None:
        """Replaces constants by name; those not named keep their values. The new set is prepared beside the active one while runs go on;
        `swap=False` leaves its activation to swap_constants(). Error: ConstantError."""
        self._load_constants(list(values), list(values.values()))
        if swap:
            self._swap_constants()

    def swap_constants(self) -> None:
        """Makes the set that load_constants prepared the active one, for runs that start from now on."""
        self._swap_constants()

    def context(self) -> Context:
        """An arena and a state of its own: call it like the model, one run at a time."""
        return self._context()

    def arrange_inputs(self, flat: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, from one tensor for each of `inputs`."""
        if self._in_tree.num_leaves != len(flat):
            raise InputCountError(f"model {self.name!r} was exported with arguments that are no tensors; help: call it as it was exported")
        positional, keywords = _parameters(self._in_tree)
        leaves = iter(flat)
        args = tuple(unflatten(tree, leaves) for tree in positional)
        return args, {name: unflatten(tree, leaves) for name, tree in keywords.items()}

    def flatten_outputs(self, result: Any) -> list[Any]:
        """One tensor or None for each of `outputs`."""
        return list(flatten(self._out_tree, result, "output"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError(f"model {self.name!r} is code of this process: it cannot be pickled or copied; help: send its path, and load() it there")

    def __repr__(self) -> str:
        arguments, results = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<sealift.Model {self.name!r} ({arguments}) -> ({results}), {self.isa}, {self.num_threads} threads>"

    # Called by the native module where a call is not a flat tuple of tensors.

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        positional, keywords = _parameters(self._in_tree)
        args, kwargs = self._by_position(args, kwargs, positional, keywords)
        leaves: list[Any] = []
        for i, (tree, value) in enumerate(zip(positional, args, strict=True)):
            leaves += flatten(tree, value, f"argument {i}")
        for name, tree in keywords.items():
            leaves += flatten(tree, kwargs[name], f"argument {name!r}")
        declared = self._entry.get("leaves", [])
        if len(leaves) == len(declared) != len(self._inputs):  # Python numbers and the like are constants of the export, no inputs
            return tuple(leaf for leaf, known in zip(leaves, declared) if self._is_tensor(leaf, known))
        return tuple(leaves)

    def _is_tensor(self, leaf: Any, declared: dict[str, Any]) -> bool:
        """A constant must be given as it was exported: the compiled code holds its value."""
        if "constant" not in declared:
            return True
        if type(leaf) is not type(declared["constant"]) or leaf != declared["constant"]:
            raise InputCountError(
                f"argument {declared['name']!r} is {leaf!r}, model {self.name!r} was exported with {declared['constant']!r} built in; "
                f"help: call it with that value, or export the model again with the other"
            )
        return False

    def _by_position(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], positional: tuple[Tree, ...], keywords: dict[str, Tree]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Lets a tensor that the export took by position be named, and one it took by name be given by position."""
        names = [info[0] for info in self._inputs]
        known = [*names[: len(positional)], *keywords] if all(t.is_leaf for t in positional) and len(names) >= len(positional) else []
        if len(args) > len(positional) and known and len(args) <= len(known):
            kwargs = {**dict(zip(known[len(positional) :], args[len(positional) :], strict=False)), **kwargs}
            args = args[: len(positional)]
        missing = known[len(args) : len(positional)]
        if missing and all(name in kwargs for name in missing):
            kwargs = dict(kwargs)
            args = (*args, *(kwargs.pop(name) for name in missing))
        if len(args) != len(positional) or set(kwargs) != set(keywords):
            taken = set(known[: len(args)]) & set(kwargs)
            if taken or set(kwargs) - set(known or keywords):
                name = min(taken or set(kwargs) - set(known or keywords))
                what = f"input {name!r} is given by position and by name" if taken else f"no input is called {name!r}"
                raise InputCountError(f"{what}, model {self.name!r} takes {', '.join(names)}; help: call it as the exported model was called")
            given = f"{len(args)} positional" + (f" and {', '.join(kwargs)}" if kwargs else "")
            takes = f"{len(positional)} positional" + (f" and {', '.join(keywords)}" if keywords else "")
            raise InputCountError(
                f"{given} inputs given, model {self.name!r} takes {takes} ({', '.join(names)}); help: call it as the exported model was called"
            )
        return args, kwargs

    def _unflatten(self, results: tuple[Any, ...]) -> Any:
        if len(self._number_kinds) == len(results):  # what the model returned as a Python number is one again
            results = tuple(r if kind is None else kind(r) for r, kind in zip(results, self._number_kinds))
        leaves: Iterator[Any] = iter(results)
        return unflatten(self._out_tree, leaves)


Context = _runtime.Context


class Package(Mapping[str, Model]):
    """The models of a package by name: package["decode"]. Each has a state of its own when it is called; session() puts them
    over one."""

    def __init__(self, path: str, num_threads: int = 0, isa: int = -1, verify: int = 1) -> None:
        self._native = _runtime.Package(path, num_threads, isa, verify)
        models = [Model._of_package(self._native, i) for i in range(self._native._num_models)]
        self._models = {m.name: m for m in models}

    def session(self) -> Session:
        """One state for all models: buffers that they have in common (FQN, dtype and shape) are one buffer. A buffer of one FQN that differs
        in dtype or shape is an error (ArgumentError)."""
        return Session(self, self._native._session())

    def __getitem__(self, name: str) -> Model:
        try:
            return self._models[name]
        except KeyError:
            raise ModelNameError(f"the package holds no model {name!r}; help: choose one of {', '.join(map(repr, self._models))}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def __repr__(self) -> str:
        return f"<sealift.Package {', '.join(map(repr, self._models))}>"


class Session(Mapping[str, Context]):
    """The models of a package over one state, by name: what session["prefill"](ids) writes into the cache, session["decode"](token) reads.
    One run at a time (BusyError else): make a session for each text."""

    def __init__(self, package: Package, native: _runtime.Session) -> None:
        self.package = package
        self._native = native
        self._contexts = {name: native._context(model, i) for i, (name, model) in enumerate(package.items())}

    def reset(self) -> None:
        """Puts every state buffer of every model back to its first value."""
        self._native.reset()

    def clone(self) -> Session:
        """A second session that goes on from this one's state."""
        return Session(self.package, self._native.clone())

    def __getitem__(self, name: str) -> Context:
        self.package[name]  # which names the models there are
        return self._contexts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._contexts

    def __iter__(self) -> Iterator[str]:
        return iter(self._contexts)

    def __len__(self) -> int:
        return len(self._contexts)


def _parameters(tree: Tree) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
    """The trees of the arguments: export's structure is ((positional...), {keyword: ...})."""
    if tree.type == "builtins.tuple" and len(tree.children) == 2 and tree.children[1].type == "builtins.dict":
        named = tree.children[1]
        return tree.children[0].children, {str(k): c for k, c in zip(named.keys or (), named.children, strict=True)}
    return tree.children, {}


def _structure(tree: Tree, num_outputs: int) -> int:
    if tree.is_leaf and num_outputs == 1:
        return _SINGLE
    if all(c.is_leaf for c in tree.children) and len(tree.children) == num_outputs:
        return {"builtins.tuple": _TUPLE, "builtins.list": _LIST}.get(tree.type or "", _OTHER)
    return _OTHER


def _dtype(number: tuple[int, int]) -> str:
    return _DTYPES.get(number, f"dlpack{number}")


def _info(raw: tuple[str, tuple[int, int], tuple[tuple[str, int, int], ...], bool]) -> TensorInfo:
    name, dtype, shape, is_none = raw
    return TensorInfo(name, _dtype(dtype), tuple(Dim(*d) for d in shape), is_none)
