"""Loops -> Loops: kernels are named after the operators they stand for: linear_gelu, add_layer_norm."""

from __future__ import annotations

from dataclasses import replace

from sealift.ir.loop.types import Kernel, Loops

MAX_OPS_IN_NAME = 4
_SILENT = {"view", "permute", "expand", "unsqueeze", "squeeze", "transpose", "clone", "alias", "slice", "select", "_to_copy", "reshape", "t"}


def name_kernels(loops: Loops) -> Loops:
    """Views say nothing about the work and are left out where anything else is there."""
    named = tuple(k if k.name == _name(k) else replace(k, name=_name(k)) for k in loops.kernels)
    return loops if all(a is b for a, b in zip(named, loops.kernels)) else replace(loops, kernels=named)


def _name(kernel: Kernel) -> str:
    short = [op.split(".")[1].lstrip("_") if "." in op else op for op in kernel.ops]
    spoken = [s for s in short if s not in _SILENT] or short or [kernel.name]
    shown = spoken[:MAX_OPS_IN_NAME]
    return "_".join(shown) + ("_and_more" if len(spoken) > MAX_OPS_IN_NAME else "")
