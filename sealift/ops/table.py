"""The operator table: one row an operator, made by the `op` decorator where its lowering stands; frozen when sealift.ops is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sealift.ir.graph.types import OpDef, Param


class OpTable:
    """Rows by name. `op` adds one; `freeze` ends that."""

    def __init__(self) -> None:
        self._rows: dict[str, OpDef] = {}
        self._frozen = False

    def op(self, name: str, *, samples: str = "", rtol: float = 0.0, atol: float = 0.0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers the decorated lowering as operator `name` ("aten.relu.default"). Its parameters after the Builder are the schema's."""

        def register(lower: Callable[..., Any]) -> Callable[..., Any]:
            if self._frozen or name in self._rows:
                raise ValueError(f"operator {name}: {'the table is frozen' if self._frozen else 'a second row'}")
            empty = inspect.Parameter.empty
            params = tuple(
                Param(p.name, None if p.default is empty else p.default, p.default is empty)
                for p in list(inspect.signature(lower).parameters.values())[1:]
            )
            self._rows[name] = OpDef(name, params, lower, samples, rtol, atol)
            return lower

        return register

    def freeze(self) -> Mapping[str, OpDef]:
        self._frozen = True
        return MappingProxyType(self._rows)


TABLE = OpTable()
op = TABLE.op
