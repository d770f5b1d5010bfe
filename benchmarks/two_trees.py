"""What a change is worth: the same model run from two checkouts of Cutaway, which take turns.

In: a GGUF file, and folders of checkouts (``git worktree add FOLDER COMMIT`` makes one). Out: for each the rates of
decoding behind a prompt of 128 and of a prefill of 512, and the ratios to the first one's, round by round.

    python benchmarks/two_trees.py MODEL.gguf BEFORE AFTER [--rounds 9] [--tokens 64]

Each checkout has a process of its own, with this interpreter's packages and its own kernels; all wait while one works.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

CHILD = """
import json, random, sys, time
from cutaway import LLM, SamplingParams
llm = LLM(sys.argv[1], threads=int(sys.argv[2]), max_model_len=1024)

def arrivals(length, new_tokens, number):
    draw = random.Random(f"{number}/{length}")
    ids = [draw.randrange(1000, 20000) for _ in range(length)]
    seen, begin = [], time.perf_counter()
    for delta in llm.stream(ids, SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)):
        seen += [time.perf_counter() - begin] * len(delta.token_ids)
    return seen

print("ready", flush=True)
for line in sys.stdin:
    number, new_tokens = json.loads(line)
    decode = arrivals(128, new_tokens, number)
    prefill = arrivals(512, 1, number)
    print(json.dumps([(len(decode) - 1) / (decode[-1] - decode[0]), 512 / prefill[0]]), flush=True)
"""


def start(tree: Path, model: Path, threads: int) -> "subprocess.Popen[str]":
    """A process that runs the model from the tree, once it says that it is ready."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve() / "src")}
    command = [sys.executable, "-c", CHILD, str(model), str(threads)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    answer(child)
    return child


def answer(child: "subprocess.Popen[str]") -> str:
    """The child's next line."""
    assert child.stdout is not None
    if not (line := child.stdout.readline()):
        raise SystemExit(f"a checkout's process ended with code {child.wait()}; see above")
    return line


def ask(child: "subprocess.Popen[str]", request: Any) -> Any:
    """The child's answer to a request."""
    assert child.stdin is not None
    print(json.dumps(request), file=child.stdin, flush=True)
    return json.loads(answer(child))


def spread(values: list[float]) -> str:
    """Median [least, greatest]."""
    return f"{statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("trees", type=Path, nargs="+", metavar="TREE", help="folders of checkouts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    arguments = parser.parse_args()
    children = [start(tree, arguments.model, arguments.threads) for tree in arguments.trees]
    rates: list[list[list[float]]] = [[] for _ in children]
    for number in range(-1, arguments.rounds):  # the first round warms up
        turn = max(number, 0) % len(children)
        for which in [*range(turn, len(children)), *range(turn)]:
            found = ask(children[which], [number, arguments.tokens])
            if number >= 0:
                rates[which].append(found)
    for child in children:
        child.communicate()
    for work, name in enumerate(("decode, context 128", "prefill of 512")):
        print(f"{name}, tokens/s: medians [least, greatest] of {arguments.rounds} rounds")
        for tree, found in zip(arguments.trees, rates, strict=True):
            ratios = [each[work] / first[work] for each, first in zip(found, rates[0], strict=True)]
            print(f"  {tree}: {spread([each[work] for each in found])}, × {spread(ratios)}")


if __name__ == "__main__":
    main()
