"""Call structures against torch's own pytree."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest

from sealift.errors import InputCountError, PackageError
from sealift.tree import flatten, parse_tree, unflatten


class Pair(NamedTuple):
    first: Any
    second: Any


VALUES = [
    1,
    (1, 2),
    [1, (2, 3), {"b": 4, "a": [5]}],
    {},
    (),
    {1: 2, "x": None},
    collections.OrderedDict(z=1, y=(2,)),
    collections.defaultdict(list, a=1),
    collections.deque([1, 2]),
    ((1, 2), {"k": 3}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_same_as_torch(value: Any) -> None:
    pytree = pytest.importorskip("torch.utils._pytree")
    leaves, spec = pytree.tree_flatten(value)
    tree = parse_tree(pytree.treespec_dumps(spec))
    assert list(flatten(tree, value, "x")) == leaves
    built = unflatten(tree, iter(leaves))
    assert built == value and type(built) is type(value)


@dataclasses.dataclass
class Three:
    a: Any
    b: Any = None
    c: Any = None


@dataclasses.dataclass(slots=True)
class Two:
    a: Any
    b: Any = None


@pytest.mark.parametrize("value", [Three(1, 2, 3), Three(1, None, 3), Three(None, None, 1), Two(1, 2), Two(1), (Two(1, [2, Three(3)]), 4)], ids=repr)
def test_dataclasses_as_torch_registers_them(value: Any) -> None:
    pytree = pytest.importorskip("torch.utils._pytree")
    from torch.export import register_dataclass

    for kind in (Three, Two):
        if kind not in pytree.SUPPORTED_NODES:
            register_dataclass(kind, serialized_type_name=f"{__name__}.{kind.__name__}")
    leaves, spec = pytree.tree_flatten(value)
    tree = parse_tree(pytree.treespec_dumps(spec))
    assert list(flatten(tree, value, "x")) == leaves
    assert unflatten(tree, iter(leaves)) == value


def test_a_field_that_was_none_stays_none() -> None:
    spec = '[1, {"type": "gone.Two", "context": "[[\\"a\\"], [\\"b\\"]]", "children_spec": [{"type": null, "context": null, "children_spec": []}]}]'
    tree = parse_tree(spec)
    assert unflatten(tree, iter([1])) == {"a": 1, "b": None}
    with pytest.raises(InputCountError, match=r"x\['b'\] is a int, the model was exported with None"):
        list(flatten(tree, {"a": 1, "b": 2}, "x"))


def test_a_type_that_only_its_package_knows() -> None:
    spec = (
        '[1, {"type": "collections.namedtuple", "context": "%s.Pair", "children_spec": ['
        + ", ".join(['{"type": null, "context": null, "children_spec": []}'] * 2)
        + "]}]"
    )
    assert unflatten(parse_tree(spec % "not.loaded"), iter([1, 2])) == (1, 2)
    for module in (__name__, "os"):
        assert unflatten(parse_tree(spec % module), iter([1, 2])) == (1, 2)
    # "os.system" is loaded in every process: it is no record type, so it is not called
    assert unflatten(parse_tree(spec.replace("%s.Pair", "os.system")), iter([1, 2])) == (1, 2)


def test_a_model_output_is_a_dict_without_transformers() -> None:
    spec = (
        '[1, {"type": "transformers.modeling_outputs.Unknown", "context": "[\\"a\\", \\"b\\"]", "children_spec": ['
        '{"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}]}]'
    )
    assert unflatten(parse_tree(spec), iter([1, 2])) == {"a": 1, "b": 2}


def test_another_structure_is_named() -> None:
    pytree = pytest.importorskip("torch.utils._pytree")
    tree = parse_tree(pytree.treespec_dumps(pytree.tree_flatten([1, {"a": 2}])[1]))
    for value, text in [(1, "x is a int"), ([1], "has 1 items"), ([1, 2], r"x\[1\] is a int"), ([1, {"b": 1}], "'b', the model takes the keys 'a'")]:
        with pytest.raises(InputCountError, match=text):
            list(flatten(tree, value, "x"))


@pytest.mark.parametrize("text", ["", "3", "[2, {}]", "[1, {}]", "[1, [1]]", "[" * 100000])
def test_damaged_specs(text: str) -> None:
    with pytest.raises(PackageError):
        parse_tree(text)
