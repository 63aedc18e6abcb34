"""Numbers as people read them: units, three significant digits, and how far they can be off."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

UNKNOWN = "–"


def duration(ns: float | None) -> str:
    if ns is None or not math.isfinite(ns):
        return UNKNOWN
    for unit, scale in (("d", 86_400e9), ("h", 3600e9), ("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= scale:
            return f"{_three_digits(ns / scale)} {unit}"
    return f"{_three_digits(ns)} ns"


def count(value: float | None) -> str:
    """Calls: exact below a million, then with a suffix."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for suffix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {suffix}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def many(number: int, what: str) -> str:
    """ "1 host", "2 hosts", "3 processes" """
    return f"{number:,} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def percent(share: float | None) -> str:
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return f"{share:.1%}" if abs(share) < 0.995 else f"{share:.0%}"


def ratio(value: float | None) -> str:
    return UNKNOWN if value is None or not math.isfinite(value) else f"×{value:.3g}"


def change(value: float | None) -> str:
    """A ratio as a change: 1.4 is +40 %."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    by = round(value - 1, 3) + 0.0  # no minus before nothing
    return f"{by:+.1%}".replace(".0%", "%").replace("-", "−") if value < 3 else f"×{value:.3g}"


def interval(low: float | None, high: float | None) -> str:
    return f"{change(low)} to {'?' if high is None or not math.isfinite(high) else change(high)}"


def p_value(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def moment(seconds: float | None) -> str:
    return UNKNOWN if not seconds else datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float | None, now_s: float) -> str:
    """How long before now; for what was heard of, so never in the future."""
    if not seconds:
        return UNKNOWN
    since = max(now_s - seconds, 0)
    for unit, scale in (("d", 86_400), ("h", 3600), ("min", 60)):
        if since >= 2 * scale:
            return f"{since / scale:.0f} {unit} ago"
    return f"{since:.0f} s ago"


def error(row: Mapping[str, Any], column: str) -> str:
    """ "± 3%", the larger side of the bounds; "+?" where there is no upper bound; "" where the error is below half a percent or unknown."""
    value, low, high = row.get(column), row.get(f"{column}_low"), row.get(f"{column}_high")
    if not value or low is None:
        return ""
    if high is None or not math.isfinite(high):
        return "+?"
    off = max(value - low, high - value) / value
    return "" if off < 0.005 else f"± {off:.0%}" if off < 9.995 else "± >999%"


def _three_digits(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}".replace("-", "−") if value else "0"
