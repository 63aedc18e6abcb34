"""What every page of figures says of the machine."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name() -> str:
    """As Linux has it; the architecture where it says nothing."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
