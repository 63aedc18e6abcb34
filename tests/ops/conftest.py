"""`make test` tries the operators that the models under tests/models and the examples are made of; `make conformance` (SEALIFT_ALL_ROWS=1)
tries every row, which takes half an hour on two cores. SEALIFT_ALL_ROWS=3/20: the third of twenty parts."""

from __future__ import annotations

import os

import pytest

from sealift.ops import OPS

EVERY_DAY = frozenset(
    "_softmax add amax arange argmax bmm cat clamp clamp_min clone cumsum div embedding eq exp expand gather ge gelu "
    "index layer_norm linear lt masked_fill matmul mean mm mul neg permute pow relu reshape rsqrt select sigmoid silu slice softmax sqrt "
    "squeeze sub sum tanh transpose unsqueeze view where heaviside nansum isin scaled_dot_product_attention native_layer_norm".split()
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = os.environ.get("SEALIFT_ALL_ROWS", "")
    if "/" in wanted:
        left_out = [item for item in items if not _is_of_part(item, *map(int, wanted.split("/")))]
    elif wanted:
        return
    else:
        left_out = [item for item in items if _row(item) is not None and _row(item) not in EVERY_DAY]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_of_part(item: pytest.Item, part: int, parts: int) -> bool:
    """Rows by turns, all tests of a row together; what is no row's is of part 1."""
    row = _row(item)
    return (_POSITIONS[item.callspec.params["op"].name] % parts if row is not None else 0) == part - 1  # type: ignore[attr-defined]


_POSITIONS = {name: position for position, name in enumerate(OPS)}


def _row(item: pytest.Item) -> str | None:
    """The operator of a test that is made for each row: "relu" of aten.relu.default."""
    op = getattr(getattr(item, "callspec", None), "params", {}).get("op")
    return op.name.split(".")[1] if op is not None and "tests/ops/" in item.nodeid else None
