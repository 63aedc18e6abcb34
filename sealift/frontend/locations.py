"""A node's place in the user's program."""

from __future__ import annotations

import linecache
import os
import re
from typing import Any

import torch
from torch import fx

from sealift.diag.loc import Loc, Place

_FRAME = re.compile(r'^\s*File "(?P<path>.+?)", line (?P<line>\d+)(?:, in .*)?\n(?P<code>(?:[ \t]+(?!File ").*\n?)?)', re.MULTILINE)
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_ROOT_KEY = re.compile(r"^L\['self'\]\.?|^L__self__\.?")


def user_loc(node: fx.Node) -> Loc:
    """The last frame of meta["stack_trace"] outside torch/, plus the module path of nn_module_stack."""
    module = module_path(node.meta.get("nn_module_stack"))
    frames = [m for m in _FRAME.finditer(node.meta.get("stack_trace") or "") if not _is_torch(m["path"])]
    if not frames:
        return Loc((Place("", 0, module),)) if module else Loc()
    last = frames[-1]
    path, line = last["path"], int(last["line"])
    code = last["code"].strip() or linecache.getline(path, line).strip()
    return Loc((Place(relative_path(path), line, module, code),))


def _is_torch(path: str) -> bool:
    return path.startswith((_TORCH, "<eval_with_key>")) or "/site-packages/torch/" in path


def relative_path(path: str) -> str:
    """Below the current directory: relative to it. Of an installed package: from the package on, so that it is the same everywhere."""
    marker = "/site-packages/"
    if marker in path:
        return path[path.rindex(marker) + len(marker) :]
    below = os.path.relpath(path) if os.path.isabs(path) else path
    return path if below.startswith("..") else below


def module_path(stack: dict[str, Any] | None) -> str:
    if not stack:
        return ""
    path = _ROOT_KEY.sub("", str(list(stack.values())[-1][0]))
    return "" if path.startswith("_empty_nn_module_stack") else path  # torch's mark of a node it made itself
