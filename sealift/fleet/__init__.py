"""The fleet: every process's operator profile, API usage and model lineage in one place.

    from sealift.fleet import connect
    fleet = connect("http://127.0.0.1:4318")
    fleet.top(by="operator").to_pandas()

`sealift fleet serve` is the collector; docs/guides/fleet.md is the first ten minutes with it. Needs the extra `fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sealift.fleet.client import Fleet

__all__ = ["connect"]


def connect(url: str = "http://127.0.0.1:4318", token: str | None = None) -> Fleet:
    """Questions to the collector at `url`; each answer is a pyarrow Table."""
    from sealift.fleet.client import Fleet

    return Fleet(url, token)
