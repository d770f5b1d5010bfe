"""Cutaway and its peers, timed in turn: see ``peers/__init__.py``.

python benchmarks/peers.py MODEL.gguf --peer-python peers/bin/python --json peers.json
"""

from peers.__main__ import main

if __name__ == "__main__":
    main()
