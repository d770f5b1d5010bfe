"""An engine's own process: ``python -m peers.worker ENGINE MODEL THREADS POSITIONS``, then requests on its input."""

import sys
from pathlib import Path

from peers.contract import serve
from peers.engines import load

if __name__ == "__main__":
    name, model, threads, positions = sys.argv[1:]
    serve(lambda: load(name)(Path(model), int(threads), int(positions)))
