"""The machine that the figures are of.

In: nothing but the system. Out: plain data.
"""

import contextlib
import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores, system, and how busy it was before."""
    cpu = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "load_average_before": os.getloadavg()[0],
    }
