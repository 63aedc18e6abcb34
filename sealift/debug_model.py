"""A loaded model under SEALIFT_DEBUG: every call also runs kernel by kernel in a host of its own, and shows what the kernels leave behind."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from sealift.environment import Debug
from sealift.intermediate_values import inspect_run
from sealift.load import Model
from sealift.recorded_run import Array, open_recorded

_LOG = logging.getLogger("sealift.debug")


class DebugModel(Model):
    """The answer is the runtime's; what is shown comes from a second run of the same code, with a state of its own that goes along."""

    def __init__(self, debug: Debug, path: str, name: str | None = None, num_threads: int = 0, isa: int = -1, verify: int = 1) -> None:
        super().__init__(path, name, num_threads, isa, verify)
        self._debug = debug
        self._recorded = open_recorded(path, self.name, self.isa)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        leaves = self._flatten(args, kwargs)
        found = inspect_run(self._recorded, [_array(leaf) for leaf in leaves], pattern=self._debug.values or "*")
        if self._debug.values is not None:
            _LOG.warning("%s\n%s", self.name, found.table)
        if self._debug.nan and (found.culprit is not None or found.odd_inputs):
            _LOG.warning("%s: %s", self.name, found.verdict)
        return super().__call__(*args, out=out, **kwargs)


def _array(leaf: Any) -> Array:
    if hasattr(leaf, "detach"):  # torch, which is not imported here
        leaf = leaf.detach()
        if str(leaf.dtype) == "torch.bfloat16":
            leaf = leaf.contiguous().view(dtype=_int16_of(leaf))
            return np.asarray(leaf.numpy()).view(np.uint16)
        return np.asarray(leaf.numpy())
    return leaf if isinstance(leaf, np.ndarray) else np.from_dlpack(leaf)


def _int16_of(tensor: Any) -> Any:
    import sys

    return sys.modules["torch"].int16
