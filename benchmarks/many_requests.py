"""Many requests at once: Cutaway's policies and llama.cpp's slots, on the ladder's workload, in turn.

In: a GGUF file, and the interpreter of an environment that has llama-cpp-python. Out: for each contestant tokens of
answers a second, and the ratios round by round: continuous against static, and against the best of llama.cpp.

    python benchmarks/many_requests.py MODEL.gguf --peer-python peers/bin/python [--rounds 5] [--json FILE]

The workload is that of ``cutaway ladder``: one prompt of 500 tokens among eleven of about 50; all begin
alike. Cutaway has the ladder's KV pool, eight contexts; llama.cpp has a whole context for each slot. Each contestant
has a process of its own, which waits on a pipe while another one works.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

OURS = """
import json, sys, time
from cutaway import LLM, SamplingParams
from cutaway.audit.ladder import RUNGS, pool_of
said = json.loads(sys.argv[3])
rung = next(each for each in RUNGS if each.name == said["rung"])
llm = LLM(sys.argv[1], threads=int(sys.argv[2]), max_model_len=said["context"], kv_tokens=pool_of(said["context"]),
          **rung.settings)
print("ready", flush=True)
for line in sys.stdin:
    prompts, answers = json.loads(line)
    llm.reset_prefix_cache()
    params = [SamplingParams(temperature=0, max_tokens=each, ignore_eos=True) for each in answers]
    begin = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - begin
    print(json.dumps([sum(len(each.outputs[0].token_ids) for each in outputs), seconds]), flush=True)
"""

LLAMA_CPP = """
import json, os, sys
from pathlib import Path
answers_to = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what llama.cpp prints must not mix with the answers
from peers.engines.llama_cpp_slots import LlamaCppSlots
said = json.loads(sys.argv[3])
engine = LlamaCppSlots(Path(sys.argv[1]), int(sys.argv[2]), said["slots"], said["context"], said["flash"])
print("ready", file=answers_to, flush=True)
for line in sys.stdin:
    found, seconds = engine.run(*json.loads(line))
    print(json.dumps([sum(map(len, found)), seconds]), file=answers_to, flush=True)
"""


def start(python: Path, code: str, arguments: list[str]) -> "subprocess.Popen[str]":
    """A contestant's process, once it says that it is ready."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        [str(python), "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    answer(child)
    return child


def answer(child: "subprocess.Popen[str]") -> str:
    """The child's next line."""
    assert child.stdout is not None
    if not (line := child.stdout.readline()):
        raise SystemExit(f"a contestant's process ended with code {child.wait()}; see above")
    return line


def ask(child: "subprocess.Popen[str]", request: Any) -> float:
    """Tokens a second of this request."""
    assert child.stdin is not None
    print(json.dumps(request), file=child.stdin, flush=True)
    tokens, seconds = json.loads(answer(child))
    if tokens != sum(request[1]):
        raise SystemExit(f"{tokens} tokens came, {sum(request[1])} were asked for")
    return float(tokens / seconds)


def spread(values: list[float]) -> str:
    """Median [least, greatest]."""
    return f"{statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


def contestants(arguments: argparse.Namespace, context: int) -> dict[str, "subprocess.Popen[str]"]:
    """All of them, started."""
    common = [str(arguments.model), str(arguments.threads)]
    found = {
        f"Cutaway, {rung}": start(Path(sys.executable), OURS, [*common, json.dumps({"rung": rung, "context": context})])
        for rung in ("static batch", "continuous", "chunked prefill")
    }
    for slots in arguments.slots if arguments.peer_python else ():
        for flash in (False, True):
            name = f"llama.cpp, {slots} slots{', flash attention' if flash else ''}"
            said = json.dumps({"slots": slots, "context": context, "flash": flash})
            found[name] = start(arguments.peer_python, LLAMA_CPP, [*common, said])
    return found


def main() -> None:
    """Measure and print."""
    from cutaway.audit.ladder import mixed_workload

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--peer-python", type=Path, help="interpreter that has llama-cpp-python")
    parser.add_argument("--slots", type=int, nargs="+", default=[8], help="of llama.cpp")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    workload = mixed_workload(arguments.requests, 40000)
    request = [[list(prompt) for prompt in workload.prompts], list(workload.answers)]
    children = contestants(arguments, workload.context)
    rates: dict[str, list[float]] = {name: [] for name in children}
    names = list(children)
    for number in range(-1, arguments.rounds):  # the first round warms up
        turn = max(number, 0) % len(names)
        for name in names[turn:] + names[:turn]:
            rate = ask(children[name], request)
            print(f"{'warming up' if number < 0 else f'round {number + 1}'}: {name}: {rate:.1f}", file=sys.stderr)
            if number >= 0:
                rates[name].append(rate)
    for child in children.values():
        child.communicate()
    prompt_tokens = sum(map(len, workload.prompts))
    print(
        f"{arguments.requests} requests, {prompt_tokens} tokens of prompts, {sum(workload.answers)} of answers; "
        f"tokens of answers a second, medians [least, greatest] of {arguments.rounds} rounds"
    )
    for name, found in rates.items():
        print(f"  {name:38} {spread(found)}")
    ours = rates["Cutaway, chunked prefill"]
    ratios = {"static batch": [a / b for a, b in zip(ours, rates["Cutaway, static batch"], strict=True)]}
    peers = [found for name, found in rates.items() if name.startswith("llama.cpp")]
    if peers:
        best = max(peers, key=statistics.median)
        ratios["the best llama.cpp"] = [a / b for a, b in zip(ours, best, strict=True)]
    for name, values in ratios.items():
        print(f"  chunked prefill / {name}: {spread(values)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rates": rates, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
