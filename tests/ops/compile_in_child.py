"""Compiles three small kernels in a process of its own: a ``jit`` function and two called by address.

Prints as JSON: how many functions were compiled (not loaded), the results' digest, the cache's folder, warnings.
"""

import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np

import cutaway
from cutaway.ops.kernel_cache import compilations


def main() -> None:
    compiled: list[str] = []
    with compilations(compiled.append), warnings.catch_warnings(record=True) as caught:
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
        "compiled": len(compiled),
        "compiler": "numba" in sys.modules,
        "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
        "addresses": all(addresses),
        "folder": str(cache_folder()),
        "package": str(Path(cutaway.__file__).parent),
        "warnings": [str(warning.message) for warning in caught],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
