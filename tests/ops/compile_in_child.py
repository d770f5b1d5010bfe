"""Compiles three small kernels in a process of its own: a ``jit`` function and two called by address.

Prints as JSON: how many functions were compiled (not loaded), the results' digest, the cache's folder, warnings.
"""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numba.core import event

import cutaway


class Counter(event.Listener):
    """Counts Numba's own events of compilation, which it has for ``jit`` functions alone."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, event: Any) -> None:
        self.count += 1

    def on_end(self, event: Any) -> None:
        pass


def main() -> None:
    counter = Counter()
    with event.install_listener("numba:compile", counter), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from cutaway.ops.cpu.rows import add_rows
        from cutaway.ops.cpu.team import Team, shared_block
        from cutaway.ops.cpu.tiles import TILE_FORMATS
        from cutaway.ops.kernel_files import cache_folder

        shared = shared_block(1)
        x, y = np.arange(32, dtype=np.float32).reshape(2, 16), np.ones((2, 16), np.float32)
        add_rows(Team(0, 1, int(shared.ctypes.data), 0), x, y)
        kernels = TILE_FORMATS["Q8_0"].kernels[2:]
        addresses = [kernel.address for kernel in kernels]
    report = {
        "compiled": counter.count + sum(kernel._compiled.cache_hits == 0 for kernel in kernels),
        "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
        "addresses": all(addresses),
        "folder": str(cache_folder()),
        "package": str(Path(cutaway.__file__).parent),
        "warnings": [str(warning.message) for warning in caught],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
