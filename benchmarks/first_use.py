"""What the first use costs: from an empty kernel cache to a loaded model, everything compiled; then from a full one.

In: a GGUF file. Out: for each round the seconds around ``LLM(…)``, and the processor time of this process and of the
second one that compiles, which bounds the former from below on quiet cores.

    .venv/bin/python benchmarks/first_use.py MODEL.gguf [--rounds 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import json, resource, sys, time
from cutaway import LLM
def used(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime
own, start = used(resource.RUSAGE_SELF), time.perf_counter()
LLM(sys.argv[1], threads=2, max_model_len=1024).close()
seconds = time.perf_counter() - start
print(json.dumps([seconds, used(resource.RUSAGE_SELF) - own, used(resource.RUSAGE_CHILDREN)]))
"""
SHOWN = ("wall", "first process", "second process")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    times: dict[str, list[list[float]]] = {"empty cache": [], "full cache": []}
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for found in times.values():
                command = [sys.executable, "-c", CHILD, str(arguments.model.resolve())]
                environment = {**os.environ, "CUTAWAY_CACHE": cache}
                answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout
                found.append(json.loads(answer))
    print(f"{arguments.model.name}, {arguments.rounds} rounds, seconds: median [least, greatest]")
    for name, found in times.items():
        columns = zip(SHOWN, zip(*found, strict=True), strict=True)
        shown = (f"{what} {statistics.median(each):.2f} [{min(each):.2f}, {max(each):.2f}]" for what, each in columns)
        print(f"  {name}: {', '.join(shown)}")


if __name__ == "__main__":
    main()
