"""How long until a model is ready to run: fresh processes in turn, the file and the kernels in their caches.

In: GGUF files. Out: for each, the medians and spreads of importing Cutaway and of making an ``LLM``, and of the parts
of the latter: opening the file, reading its tokenizer, repacking its weights into tiles.

    .venv/bin/python benchmarks/ready.py MODEL.gguf …
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, sys, time
start = time.perf_counter()
from cutaway import LLM
imported = time.perf_counter()
if sys.argv[2] == "whole":
    LLM(sys.argv[1])
    times = {"import": imported - start, "LLM": time.perf_counter() - imported}
else:
    from cutaway.formats.open_model import open_model
    from cutaway.model.loader import load_model
    from cutaway.ops.cpu.processors import default_threads
    from cutaway.tokenizer import open_tokenizer
    marks = [time.perf_counter()]
    with open_model(sys.argv[1]) as source:
        marks.append(time.perf_counter())
        open_tokenizer(source)
        marks.append(time.perf_counter())
        load_model(source, default_threads())
        marks.append(time.perf_counter())
    times = {name: b - a for name, a, b in zip(("open", "tokenizer", "repack"), marks, marks[1:])}
print(json.dumps(times))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="GGUF files")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    for model in arguments.models:
        times: dict[str, list[float]] = {}
        for number in range(-1, arguments.rounds):  # the first round warms the caches
            for what in ("whole", "parts"):
                command = [sys.executable, "-c", CHILD, str(model), what]
                found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                for name, seconds in found.items() if number >= 0 else ():
                    times.setdefault(name, []).append(seconds)
        print(f"{model.name}, {model.stat().st_size / 1e6:.0f} MB, {arguments.rounds} rounds, seconds")
        for name, seconds in times.items():
            print(f"  {name:10} {statistics.median(seconds):.2f} [{min(seconds):.2f}, {max(seconds):.2f}]")


if __name__ == "__main__":
    main()
