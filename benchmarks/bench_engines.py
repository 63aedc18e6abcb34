"""How each engine prepares a model and answers a call. Runs in a child process (bench_child.py), in the project's environment or the peers'.

`prepare(model, target)` makes what would be shipped: from the exported program where the engine takes one. `load(target, threads)` gives a
function from NumPy arrays to outputs in NumPy or the engine's own tensors; what converting costs there is part of a call, as it is for a user."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = Callable[[], Any]


@dataclass(frozen=True)
class Engine:
    """in_peers: it lives in the peers' environment.  suffix: of what is shipped; "" where nothing is.
    prepare: (exported program, target) -> seconds.  load: (directory, target, threads, inputs as NumPy arrays) -> the call."""

    name: str
    title: str
    in_peers: bool
    suffix: str
    prepare: Callable[[Path, Path], float]
    load: Callable[[Path, Path, int, Sequence[Any]], Call]


def _load_program(path: Path) -> Any:
    import torch

    return torch.export.load(path)


# ---- sealift ---------------------------------------------------------------------------------------------------------------------


def _prepare_sealift(program: Path, target: Path) -> float:
    import sealift.frontend
    import sealift.pipeline

    exported = _load_program(program)
    start = time.perf_counter()
    sealift.pipeline.compile(exported, target)
    return time.perf_counter() - start


def _load_sealift(directory: Path, target: Path, threads: int, inputs: Sequence[Any]) -> Call:
    import sealift

    model = sealift.load(target, num_threads=threads)
    return lambda: model(*inputs)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------------------


def _tensors(inputs: Sequence[Any], threads: int) -> list[Any]:
    import torch

    torch.set_num_threads(threads)
    return [torch.from_numpy(a) for a in inputs]


def _prepare_nothing(program: Path, target: Path) -> float:
    return 0.0


def _load_eager(directory: Path, target: Path, threads: int, inputs: Sequence[Any]) -> Call:
    import torch
    from bench_models import case_of

    tensors = _tensors(inputs, threads)
    module = case_of(directory.name)[0].build()[0]

    def call() -> Any:
        with torch.inference_mode():
            return module(*tensors)

    return call


def _prepare_aoti(tuned: bool) -> Callable[[Path, Path], float]:
    def prepare(program: Path, target: Path) -> float:
        import torch._inductor
        import torch._inductor.compile_fx
        import torch._inductor.package

        exported = _load_program(program)
        options = {"freezing": True, "max_autotune": True} if tuned else {}
        start = time.perf_counter()
        torch._inductor.aoti_compile_and_package(exported, package_path=str(target), inductor_configs=options)
        return time.perf_counter() - start

    return prepare


def _load_aoti(directory: Path, target: Path, threads: int, inputs: Sequence[Any]) -> Call:
    import torch._inductor

    tensors = _tensors(inputs, threads)
    model = torch._inductor.aoti_load_package(str(target))
    return lambda: model(*tensors)


# ---- the peers -------------------------------------------------------------------------------------------------------------------


def _prepare_onnx(program: Path, target: Path) -> float:
    import torch

    exported = _load_program(program)
    start = time.perf_counter()
    torch.onnx.export(exported, dynamo=True, verbose=False).save(str(target), external_data=False)
    return time.perf_counter() - start


def _load_onnxruntime(directory: Path, target: Path, threads: int, inputs: Sequence[Any]) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    if len(names) != len(inputs):
        raise ValueError(f"the converted model takes {len(names)} inputs ({', '.join(names)}), the model {len(inputs)}")
    feed = dict(zip(names, inputs, strict=True))
    return lambda: session.run(None, feed)


def _prepare_openvino(program: Path, target: Path) -> float:
    import openvino

    exported = _load_program(program)
    start = time.perf_counter()
    openvino.save_model(openvino.convert_model(exported), str(target), compress_to_fp16=False)
    return time.perf_counter() - start


def _load_openvino(directory: Path, target: Path, threads: int, inputs: Sequence[Any]) -> Call:
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    model = core.compile_model(str(target), "CPU", hints)
    if len(model.inputs) != len(inputs):
        raise ValueError(f"the converted model takes {len(model.inputs)} inputs, the model {len(inputs)}")
    request, given = model.create_infer_request(), dict(enumerate(inputs))
    outputs = range(len(model.outputs))

    def call() -> Any:
        result = request.infer(given, share_inputs=True, share_outputs=True)
        return [result[i] for i in outputs]

    return call


def _prepare_executorch(program: Path, target: Path) -> float:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = _load_program(program)
    start = time.perf_counter()
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    target.write_bytes(lowered.buffer)
    return time.perf_counter() - start


def _load_executorch(directory: Path, target: Path, threads: int, inputs: Sequence[Any]) -> Call:
    from executorch.runtime import Runtime

    tensors = _tensors(inputs, threads)
    runtime = Runtime.get()
    from executorch.extension.pybindings import _C

    _C._unsafe_reset_threadpool(threads)
    method = runtime.load_program(target).load_method("forward")
    return lambda: method.execute(tensors)


_ALL = (
    Engine("sealift", "sealift", False, ".pt2", _prepare_sealift, _load_sealift),
    Engine("eager", "eager", False, "", _prepare_nothing, _load_eager),
    Engine("aoti", "AOTInductor", False, ".pt2", _prepare_aoti(False), _load_aoti),
    Engine("aoti_tuned", "AOTInductor, freezing + max_autotune", False, ".pt2", _prepare_aoti(True), _load_aoti),
    Engine("onnxruntime", "ONNX Runtime", True, ".onnx", _prepare_onnx, _load_onnxruntime),
    Engine("openvino", "OpenVINO f32", True, ".xml", _prepare_openvino, _load_openvino),
    Engine("executorch", "ExecuTorch XNNPACK", True, ".pte", _prepare_executorch, _load_executorch),
)
ENGINES = {engine.name: engine for engine in _ALL}
