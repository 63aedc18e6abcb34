"""Times as people type them: unix seconds, ISO 8601, `now`, `-90m`, `-2d`."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from sealift.fleet.errors import QuestionError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_time(text: str, now_s: float) -> int:
    """Unix seconds. ISO 8601 without a zone is UTC."""
    text = text.strip()
    if text in ("", "now"):
        return int(now_s)
    relative = re.fullmatch(r"(?:now)?-(\d+(?:\.\d+)?)([smhdw])", text)
    if relative:
        return int(now_s - float(relative[1]) * _UNITS[relative[2]])
    if re.fullmatch(r"\d{1,12}(\.\d+)?", text):
        return int(float(text))
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise QuestionError(f"time {text!r}; help: unix seconds, 2026-05-04T12:00, now, -90m, -6h or -2d") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp())


def parse_span(text: str) -> int:
    """Seconds: `600`, `10m`, `2d`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if not found:
        raise QuestionError(f"span {text!r}; help: 600, 10m, 2h or 7d")
    return int(float(found[1]) * _UNITS.get(found[2], 1))


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
