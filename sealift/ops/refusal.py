"""How a row says that it exists, but not for these arguments."""

from __future__ import annotations

from typing import NoReturn


def refuse(message: str) -> NoReturn:
    """E-OP-002, to which the lowering adds the node and the user's line."""
    raise NotImplementedError(message)
