"""Watch operators: PyTorch's, in any process, and sealift's own kernels.

    from sealift import observe

    observe.start()                                     # always on: sampled, in random windows, within a budget of 0.3 %
    with observe.debug_info(model_id="ranker:7"):
        serve(batch)
    print(observe.snapshot().series[0])                 # counts, times, histograms

    observe.add_global_callback(on_enter, on_exit, needs_inputs=True, sampling_prob=0.01)
    observe.set_api_usage_handler(lambda key: log(key))
    observe.set_metadata_hook(lambda file: {"build": BUILD_ID})

Nothing here imports torch. Its operators are seen once it is imported, before or after, if the bridge for its version was built:
`sealift bridge build`. Without it all the rest works, and sealift's own kernels are seen."""

from __future__ import annotations

from sealift.observe.bridge import BridgeBuildError, BridgeError
from sealift.observe.callbacks import SCOPES, Handle, Record, TensorMeta, add_global_callback, add_thread_local_callback, disabled, enable
from sealift.observe.context import Thread, ThreadPoolExecutor, carry, current_info, debug_info
from sealift.observe.install import install_torch, torch_is_observed
from sealift.observe.metadata import FileSaved, describe_model, model_events, read_metadata, set_metadata_hook
from sealift.observe.recorder import Rates, adjust, is_running, rates, snapshot, start, step, stop
from sealift.observe.snapshot import Event, Histogram, ModelEvent, ModelInfo, Process, Sampling, Series, Snapshot
from sealift.observe.trace import Traced, trace
from sealift.observe.usage import api_usage, log_api_usage_once, set_api_usage_handler

__all__ = [
    "SCOPES", "BridgeBuildError", "BridgeError", "Event", "FileSaved", "Handle", "Histogram", "ModelEvent", "ModelInfo", "Process", "Rates", "Record",
    "Sampling", "Series", "Snapshot", "TensorMeta", "Thread", "ThreadPoolExecutor", "Traced", "add_global_callback",
    "add_thread_local_callback", "adjust", "api_usage", "carry", "current_info", "debug_info", "describe_model", "disabled", "enable",
    "install_torch", "is_running", "log_api_usage_once", "model_events", "rates", "read_metadata", "set_api_usage_handler", "set_metadata_hook",
    "snapshot", "start", "step", "stop", "torch_is_observed", "trace",
]  # fmt: skip
