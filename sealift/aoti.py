"""The calls that AOTInductor users type, with torch 2.13's names, arguments and defaults: change the import and the script runs.

    from sealift.aoti import aoti_compile_and_package, aoti_load_package      # was: torch._inductor
    from sealift.aoti import load_package, package_aoti                       # was: torch._inductor.package

An option that sealift does not apply is named in a warning, never dropped in silence. Differences that remain: a package is compiled for
the CPU; load_constants copies what it is given."""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from sealift.errors import ArgumentError, ConstantError
from sealift.load import Model, load
from sealift.package.read import read_member, read_package
from sealift.package.write import PackagedModel, write_package

if TYPE_CHECKING:
    import torch

    from sealift.options import Options

__all__ = ["CompiledModel", "aot_compile", "aoti_compile_and_package", "aoti_load_package", "load_package", "package_aoti"]

log = logging.getLogger(__name__)

FileLike: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
AotiFiles: TypeAlias = "list[Any] | dict[str, list[Any]]"

# What AOTInductor's options come to here. True: sealift always does it, or has nothing to do for it.
_ALWAYS: dict[str, Any] = {
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": True,
    "aot_inductor.package_constants_on_disk": True,
    "aot_inductor.use_runtime_constant_folding": False,
    "aot_inductor.compile_wrapper_opt_level": None,
    "always_keep_tensor_constants": True,
    "cpp_wrapper": True,
    "deterministic": True,
    "freezing": True,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "max_autotune_pointwise": False,
}
_APPLIED = ("aot_inductor.debug_compile", "aot_inductor.metadata", "aot_inductor.output_path")


# ---- compiling --------------------------------------------------------------------------------------------------------------------


def aoti_compile_and_package(
    exported_program: torch.export.ExportedProgram,
    _deprecated_unused_args: Any = None,
    _deprecated_unused_kwargs: Any = None,
    *,
    package_path: FileLike | None = None,
    inductor_configs: dict[str, Any] | None = None,
) -> Any:
    """Compiles the program into a package and returns its path (or the buffer that was given). Without a path: in a new directory below
    the system's for temporary files."""
    import torch

    from sealift.pipeline import compile

    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise ArgumentError("Only ExportedProgram is supported; help: pass what torch.export.export returned")
    if exported_program.example_inputs is None:
        raise ArgumentError("exported_program.example_inputs is required; help: export with torch.export.export")
    if _deprecated_unused_args is not None or _deprecated_unused_kwargs is not None:
        log.warning("args and kwargs are not used: they are in exported_program.example_inputs")
    configs = dict(inductor_configs or {})
    if configs.get("aot_inductor.output_path"):
        raise ArgumentError("aot_inductor.output_path cannot be given here; help: package_path=...")
    options = _options(configs)
    if package_path is None:
        package_path = os.path.join(tempfile.mkdtemp(prefix="sealift_"), "model.pt2")
    if isinstance(package_path, (str, os.PathLike)):
        if not os.fspath(package_path).endswith(".pt2"):
            raise ArgumentError(f"package_path={os.fspath(package_path)!r}; help: its name ends in .pt2")
        compile(exported_program, package_path, options=options)
        return package_path
    with tempfile.TemporaryDirectory(prefix="sealift_") as directory:
        _into_buffer(compile(exported_program, Path(directory) / "model.pt2", options=options), package_path)
    return package_path


def aot_compile(
    gm: torch.fx.GraphModule,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    options: dict[str, Any] | None = None,
) -> str | list[Any]:
    """Compiles a graph module (or an ExportedProgram) and returns the path of the library, its weights beside it; with
    "aot_inductor.package" the list of files that package_aoti takes. They stay until you delete them."""
    from sealift.pipeline import compile

    configs = dict(options or {})
    program = gm if hasattr(gm, "graph_signature") else _exported(gm, args, kwargs)
    output = configs.get("aot_inductor.output_path")
    directory = Path(os.path.dirname(output) or ".") if output else Path(tempfile.mkdtemp(prefix="sealift_"))
    stem = os.path.basename(output).removesuffix(".so").removesuffix(".wrapper") if output else "model"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sealift_") as scratch:
        package = compile(program, Path(scratch) / "model.pt2", options=_options(configs))
        files = [directory / f"{stem}.wrapper.so", directory / f"{stem}.wrapper_metadata.json"]
        info = read_package(package)
        base = "data/aotinductor/model/model"
        files[0].write_bytes(read_member(package, f"{base}.wrapper.so"))
        files[1].write_bytes(read_member(package, f"{base}.wrapper_metadata.json"))
        if "weights" in info.model():
            files.append(directory / f"{stem}.weights.bin")
            files[-1].write_bytes(read_member(package, f"{base}.weights.bin"))
        files.append(directory / f"{stem}.sealift.json")
        files[-1].write_text(json.dumps({"model": info.model(), "metadata": info.manifest.get("metadata", {})}))
    return [str(f) for f in files] if configs.get("aot_inductor.package") else str(files[0])


def package_aoti(archive_file: FileLike, aoti_files: AotiFiles) -> FileLike:
    """Packs what aot_compile returned, for one model or for several by name."""
    by_name = aoti_files if isinstance(aoti_files, dict) else {"model": aoti_files}
    models, metadata = [], dict[str, str]()
    for name, files in by_name.items():
        model, its_metadata = _packaged(name, [str(f) for f in files])
        models.append(model)
        metadata.update(its_metadata)
    if isinstance(archive_file, (str, os.PathLike)):
        write_package(archive_file, models, metadata)
    else:
        with tempfile.TemporaryDirectory(prefix="sealift_") as directory:
            _into_buffer(write_package(Path(directory) / "model.pt2", models, metadata), archive_file)
    return archive_file


def _packaged(name: str, files: list[str]) -> tuple[PackagedModel, dict[str, str]]:
    def ending(suffix: str) -> Path | None:
        return next((Path(f) for f in files if f.endswith(suffix)), None)

    library, described, weights = ending(".wrapper.so"), ending(".sealift.json"), ending(".weights.bin")
    if library is None or described is None:
        raise ArgumentError(
            f"model {name!r}: not the files of sealift.aoti.aot_compile; help: pass the list that aot_compile(..., "
            'options={"aot_inductor.package": True}) returned'
        )
    document = json.loads(described.read_text())
    manifest = {k: v for k, v in document["model"].items() if k not in ("name", "library", "weights")}
    return PackagedModel(name, library, weights if weights is not None else (), manifest), document["metadata"]


def _into_buffer(package: Path, buffer: IO[bytes]) -> None:
    buffer.write(package.read_bytes())
    buffer.flush()


def _options(configs: Mapping[str, Any]) -> Options:
    from sealift.options import Options

    ignored = [key for key, value in configs.items() if key not in _APPLIED and not (key in _ALWAYS and _ALWAYS[key] in (value, None))]
    if ignored:
        log.warning("options that sealift does not apply: %s", ", ".join(f"{key}={configs[key]!r}" for key in sorted(ignored)))
    return Options(
        debug_symbols=bool(configs.get("aot_inductor.debug_compile", False)),
        metadata={str(k): str(v) for k, v in (configs.get("aot_inductor.metadata") or {}).items()},
    )


def _exported(gm: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """A graph module, as ep.module() gives it, as a program again: its placeholders remember which sizes are dynamic."""
    import torch

    dims: dict[str, Any] = {}

    def dim_of(size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return None
        symbol = size.node.expr
        if not symbol.is_Symbol:
            return torch.export.Dim.AUTO
        ranges = size.node.shape_env.var_to_range[symbol]
        if str(symbol) not in dims:
            low, high = int(ranges.lower), int(ranges.upper) if ranges.upper.is_Integer and int(ranges.upper) < 2**62 else None
            dims[str(symbol)] = torch.export.Dim(str(symbol), min=low, max=high)
        return dims[str(symbol)]

    values = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    shapes = [{i: dim_of(s) for i, s in enumerate(v.shape)} if isinstance(v, torch.Tensor) else None for v in values]
    leaves, spec = torch.utils._pytree.tree_flatten((tuple(args), kwargs or {}))
    if len(leaves) != len(shapes) or not any(d is not None for s in shapes if s for d in s.values()):
        return torch.export.export(gm, tuple(args), kwargs)
    positional, named = torch.utils._pytree.tree_unflatten(shapes, spec)
    return torch.export.export(gm, tuple(args), kwargs, dynamic_shapes=(*positional, *named.values()))


# ---- running ----------------------------------------------------------------------------------------------------------------------


class CompiledModel:
    """What AOTICompiledModel offers, over a sealift.Model, which is `model`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def get_metadata(self) -> dict[str, str]:
        return {"AOTI_DEVICE_KEY": "cpu", **self.model.metadata}

    def load_constants(
        self,
        constants_map: dict[str, torch.Tensor],
        *,
        check_full_update: bool,
        user_managed: bool = False,
        allow_h2d_copy: bool = False,
    ) -> None:
        """Replaces constants by name. Error: ConstantError, also where check_full_update is set and one is missing."""
        if user_managed:
            log.warning("options that sealift does not apply: user_managed=True: the constants are copied")
        missing = [fqn for fqn in self.get_constant_fqns() if fqn not in constants_map]
        if check_full_update and missing:
            raise ConstantError(f"no value for {', '.join(missing)}; help: give every constant, or check_full_update=False")
        self.model.load_constants({name: value.detach() for name, value in constants_map.items()})

    def get_constant_fqns(self) -> list[str]:
        return self.model.get_constant_fqns()

    def __deepcopy__(self, memo: dict[Any, Any] | None) -> CompiledModel:
        return CompiledModel(self.model)


def aoti_load_package(path: FileLike, run_single_threaded: bool = False, device_index: int = -1) -> CompiledModel:
    """Loads the package's model: the one called "model". This lets its code run: load what you trust."""
    return load_package(path, run_single_threaded=run_single_threaded, device_index=device_index)


def load_package(
    path: FileLike,
    model_name: str = "model",
    run_single_threaded: bool = False,
    num_runners: int = 1,
    device_index: int = -1,
) -> CompiledModel:
    """Loads one model of a package. Any number of threads may call it, whatever `num_runners` and `run_single_threaded` say."""
    del num_runners, run_single_threaded  # contexts are made as concurrent calls need them
    if device_index != -1:
        log.warning("options that sealift does not apply: device_index=%d: the model runs on the CPU", device_index)
    if isinstance(path, (str, os.PathLike)):
        return CompiledModel(load(path, model_name))
    if not isinstance(path, (io.IOBase, IO)) and not hasattr(path, "read"):
        raise ArgumentError(f"path is a {type(path).__name__}; help: a path or a buffer")
    with tempfile.NamedTemporaryFile(prefix="sealift_", suffix=".pt2") as file:  # mapped, so it may go once it is loaded
        path.seek(0)
        file.write(path.read())
        file.flush()
        return CompiledModel(load(file.name, model_name))
