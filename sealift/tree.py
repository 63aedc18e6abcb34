"""The structure of a call, as torch.utils._pytree.treespec_dumps stores it, without torch.

Containers of the standard library keep their type. One that only its own package knows (a namedtuple, a transformers ModelOutput) is built
as that type where the process has imported it already, else as a tuple, or as a dict where its context holds the keys."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sealift.errors import InputCountError, PackageError


@dataclass(frozen=True)
class Tree:
    """A leaf has no type. `keys` are those of a mapping, in the order of its children."""

    type: str | None
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] | None = None
    context: Any = None

    @property
    def is_leaf(self) -> bool:
        return self.type is None

    @property
    def num_leaves(self) -> int:
        return 1 if self.is_leaf else sum(c.num_leaves for c in self.children)


LEAF = Tree(None)
ABSENT = Tree("builtins.NoneType")  # a dataclass's field that is None in the exported call
_MAPPINGS = ("builtins.dict", "collections.OrderedDict", "collections.defaultdict")


def parse_tree(text: str) -> Tree:
    """Error: E-PACKAGE-001 for text that is no treespec of version 1."""
    try:
        version, spec = json.loads(text)
        if version != 1:
            raise ValueError(f"version {version}")
        return _parse(spec)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PackageError(f"the package's call structure cannot be read: {error}") from error


def _parse(spec: dict[str, Any]) -> Tree:
    if spec["type"] is None:
        return LEAF
    context = spec["context"]
    if isinstance(context, str):
        with suppress(ValueError):  # a type's own text, as a namedtuple's name
            context = json.loads(context)
    children = tuple(_parse(c) for c in spec["children_spec"])
    names = context.get("dict_context") if isinstance(context, dict) else context
    if _is_dataclass(context):
        names, absent = context
        children += (ABSENT,) * len(absent)
        names = [*names, *absent]
    keys = tuple(names) if isinstance(names, list) and len(names) == len(children) and len(children) > 0 else None
    if spec["type"] in _MAPPINGS and keys is None:
        keys = ()
    return Tree(str(spec["type"]), children, keys, context)


def _is_dataclass(context: Any) -> bool:
    """torch.export.register_dataclass: [names of the fields with a value, names of those that are None]"""
    return isinstance(context, list) and len(context) == 2 and all(isinstance(names, list) for names in context)


# ---- taking apart -----------------------------------------------------------------------------------------------------------------


def flatten(tree: Tree, value: Any, where: str) -> Iterator[Any]:
    """The leaves of `value`, which must be built as `tree` is. Error: E-INPUT-001, naming the place."""
    if tree.is_leaf:
        yield value
    elif tree is ABSENT:
        if value is not None:
            raise InputCountError(f"{where} is a {type(value).__name__}, the model was exported with None there")
    elif tree.keys is not None:
        items = value if isinstance(value, Mapping) else _fields(value)
        if not isinstance(items, Mapping):
            raise InputCountError(f"{where} is a {type(value).__name__}, the model takes a dict with {_listed(tree.keys)}")
        if set(items) != set(tree.keys):
            raise InputCountError(f"{where} has {_listed(items)}, the model takes {_listed(tree.keys)}")
        for key, child in zip(tree.keys, tree.children, strict=True):
            yield from flatten(child, items[key], f"{where}[{key!r}]")
    else:
        if not isinstance(value, (tuple, list, deque)):
            raise InputCountError(f"{where} is a {type(value).__name__}, the model takes a {_short(tree)} of {len(tree.children)}")
        if len(value) != len(tree.children):
            raise InputCountError(f"{where} has {len(value)} items, the model takes {len(tree.children)}")
        for i, (child, item) in enumerate(zip(tree.children, value, strict=True)):
            yield from flatten(child, item, f"{where}[{i}]")


def _fields(value: Any) -> Any:
    """By name, of a dataclass with __slots__ too."""
    names = getattr(type(value), "__dataclass_fields__", None)
    return {n: getattr(value, n) for n in names} if names is not None else getattr(value, "__dict__", None)


def _listed(keys: Any) -> str:
    return "the keys " + (", ".join(map(repr, keys)) or "(none)")


def _short(tree: Tree) -> str:
    return (tree.type or "tensor").rsplit(".", 1)[-1]


# ---- putting together -------------------------------------------------------------------------------------------------------------


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    if tree.is_leaf:
        return next(leaves)
    if tree is ABSENT:
        return None
    children = [unflatten(child, leaves) for child in tree.children]
    match tree.type:
        case "builtins.tuple":
            return tuple(children)
        case "builtins.list":
            return children
        case "collections.deque":
            return deque(children)
        case "builtins.dict":
            return dict(zip(tree.keys or (), children, strict=True))
        case "collections.OrderedDict":
            return OrderedDict(zip(tree.keys or (), children, strict=True))
        case "collections.defaultdict":
            return defaultdict(_factory(tree.context), zip(tree.keys or (), children, strict=True))
    known = _known_type(tree.context if tree.type == "collections.namedtuple" else tree.type)
    if tree.keys is not None:
        items = {str(k): v for k, v in zip(tree.keys, children, strict=True)}
        return known(**items) if known is not None else items
    return known(*children) if known is not None else tuple(children)


def _factory(context: Any) -> Callable[[], Any] | None:
    name = context.get("default_factory_name") if isinstance(context, dict) else None
    builtin: dict[Any, Callable[[], Any]] = {"list": list, "dict": dict, "int": int, "float": float, "set": set}
    return builtin.get(name)


def _known_type(name: Any) -> Callable[..., Any] | None:
    """The class of that name if its module is loaded. Nothing is imported by a name that a file holds."""
    module, _, attribute = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    found = getattr(sys.modules.get(module), attribute, None) if module else None
    is_plain = isinstance(found, type) and (hasattr(found, "_fields") or hasattr(found, "__dataclass_fields__"))
    return found if is_plain else None
