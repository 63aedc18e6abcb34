"""The names of a model's inputs and outputs, and the structure of its calls as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils import _pytree as pytree

from sealift.diag.errors import CompileError
from sealift.frontend.decompose import Program


def structure_text(spec: Any, verb: str) -> str:
    """A call's structure as PyTorch writes it; E-EXPORT-003 for a type that has no written form."""
    if spec is None:
        return ""
    try:
        text: str = pytree.treespec_dumps(spec)
    except NotImplementedError as error:
        nameless = _nameless_namedtuple(spec)
        if nameless is None:
            how = "register the type with torch.utils._pytree, with a serialized_type_name"
        else:
            name = f"{nameless.__module__}.{nameless.__qualname__}"
            how = f'name it before exporting: torch.utils._pytree._register_namedtuple({nameless.__name__}, serialized_type_name="{name}")'
        raise CompileError(
            f"the model {verb} a structure that has no written form: {error}",
            code="E-EXPORT-003",
            help=f"use tuples, lists and dicts: `return tuple(x.max(-1))`; or {how}",
        ) from error
    return text


def _nameless_namedtuple(spec: Any) -> type | None:
    """The first namedtuple of a structure that torch has no name for."""
    if spec.type is pytree.namedtuple and spec.context not in pytree.SUPPORTED_SERIALIZED_TYPES:
        return spec.context if isinstance(spec.context, type) else None
    return next((found for child in spec.children() for found in [_nameless_namedtuple(child)] if found is not None), None)


def _path_text(path: Sequence[Any]) -> list[str]:
    return [str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))) for k in path]


def _leaf_paths(spec: Any) -> list[list[str]]:
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    return [_path_text(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]


def input_names(ep: Program, fallback: list[str]) -> list[str]:
    """The forward's parameter for each leaf, with the way into it: "x", "batch.ids", "pair.0"."""
    spec = ep.call_spec.in_spec
    entry = ep.module_call_graph[0] if ep.module_call_graph else None
    parameters = list(getattr(entry.signature, "forward_arg_names", None) or []) if entry is not None and entry.signature is not None else []
    if spec is None or spec.num_leaves != len(fallback):
        return fallback
    names: list[str] = []
    for path, other in zip(_leaf_paths(spec), fallback, strict=True):
        head, rest = path[0], path[1:]
        if head == "0":
            position = int(rest[0])
            first = parameters[position] if position < len(parameters) else (other if len(rest) == 1 else other.partition("_")[0])
            names.append(".".join([first, *rest[1:]]))
        else:
            names.append(".".join(rest))
    return names if len(set(names)) == len(names) else fallback


def output_names(ep: Program, count: int) -> tuple[str, ...]:
    """A dict's keys ("logits", "hidden.0"); "output" for a single tensor, "output.0", "output.1" for a tuple."""
    spec = ep.call_spec.out_spec
    if spec is None or spec.num_leaves != count:
        return tuple(f"output.{k}" for k in range(count)) if count != 1 else ("output",)
    # collections.namedtuple, the type of every namedtuple, is a function
    keyed = isinstance(spec.type, type) and not issubclass(spec.type, (tuple, list))
    return tuple(".".join(path if keyed and path else ["output", *path]) for path in _leaf_paths(spec))
