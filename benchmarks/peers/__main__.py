"""The command: what to compare, on the command line.

In: arguments. Out: the table on standard output, and all figures in a JSON file.
"""

import argparse
import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cutaway.audit.llama_cpp_process import CannotRunError
from cutaway.audit.peer_process import PeerProcess
from cutaway.audit.speed import Workload
from peers.contestants import Contestant, chosen, contestants, versions
from peers.engines import ENGINES
from peers.machine import machine
from peers.memory import measure_memory
from peers.rounds import Results, run_rounds
from peers.streaming import Model, streaming_probe
from peers.summary import summarise
from peers.table import lines_of
from peers.workloads import MEMORY, MEMORY_WORKLOAD, ROWS, WORKLOADS, corpus, positions_of, prompts_of

LEAST_ROUNDS = 5


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    result = argparse.ArgumentParser(prog="peers", description="Cutaway and its peers, timed in turn.")
    result.add_argument("model", type=Path, help="GGUF file, which every engine reads")
    result.add_argument("--peer-python", type=Path, required=True, help="interpreter of the peers' environment")
    result.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="default: all")
    result.add_argument("--engines", nargs="+", metavar="ENGINE", help=f"of {', '.join(ENGINES)}; default: all")
    result.add_argument(
        "--peer-model",
        action="append",
        default=[],
        metavar="ENGINE=FILE",
        help="another file of the same model for a peer, beside the first; may be given again",
    )
    result.add_argument("--threads", type=int, default=2)
    result.add_argument("--rounds", type=int, default=7)
    result.add_argument("--json", type=Path, help="also write everything to this file")
    return result


def peer_model(text: str) -> tuple[str, Path]:
    """ENGINE=FILE. Raises ValueError."""
    name, separator, file = text.partition("=")
    chosen([name])
    if not separator or not Path(file).is_file():
        raise ValueError(f"--peer-model {text}: it must be ENGINE=FILE, and the file must be there")
    return name, Path(file)


def measure(
    taking_part: list[Contestant], works: dict[str, Workload], model: Model, threads: int, rounds: int
) -> tuple[Results, dict[str, dict[str, str]]]:
    """The rounds, and the versions of the engines."""
    most = model.config.context_length
    too_long = {
        row: f"it needs {work.prompt_tokens + work.new_tokens:,} positions, the model was trained on {most:,}"
        for row, work in works.items()
        if work.prompt_tokens + work.new_tokens > most
    }
    possible = {row: work for row, work in works.items() if row not in too_long}
    positions = min(most, max((positions_of(work) for work in possible.values()), default=0))
    ids = corpus(model.config.vocab_size)
    unable: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        processes: dict[str, PeerProcess] = {}
        for each in taking_part if possible else ():
            tell(f"loading: {each.name}")
            try:
                processes[each.name] = stack.enter_context(each.start(threads, positions))
            except CannotRunError as reason:
                unable[each.name] = str(reason)
        results = run_rounds(
            processes,
            possible,
            lambda work, request: prompts_of(work, ids, request),
            streaming_probe(model, threads),
            rounds if possible else 0,
            tell,
        )
        told = versions(processes)
    for row in possible:
        results.cannot[row] |= unable
    for row, why in too_long.items():
        results.rates[row], results.cannot[row] = {}, {each.name: why for each in taking_part}
    return results, told


def tell(text: str) -> None:
    """What is going on, on standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    arguments_of = parser()
    arguments = arguments_of.parse_args()
    for path in (arguments.model, arguments.peer_python):
        if not path.is_file():
            arguments_of.error(f"no file {path}")
    if arguments.rounds < LEAST_ROUNDS:
        arguments_of.error(f"--rounds {arguments.rounds}: a median needs at least {LEAST_ROUNDS}")
    try:
        engines, others = chosen(arguments.engines), [peer_model(text) for text in arguments.peer_model]
    except ValueError as error:
        arguments_of.error(str(error))
    taking_part = contestants(arguments.model, engines, arguments.peer_python, others)
    about, model = machine(), Model.of(arguments.model)
    works = {row: WORKLOADS[row] for row in arguments.rows if row != MEMORY}
    memory: dict[str, Any] = {}
    if MEMORY in arguments.rows:
        ids = corpus(model.config.vocab_size)
        (prompt,) = prompts_of(MEMORY_WORKLOAD, ids, -1)
        kv_bytes = model.kv_bytes(positions_of(MEMORY_WORKLOAD))
        memory = measure_memory(taking_part, arguments.threads, prompt, kv_bytes, tell)
    results = Results()
    engine_versions: dict[str, dict[str, str]] = {}
    if works:
        results, engine_versions = measure(taking_part, works, model, arguments.threads, arguments.rounds)
    ours, same_file = taking_part[0].name, {each.name for each in taking_part if each.model == arguments.model}
    step_bytes = {
        row: (model.step_bytes(work), work.sequences) for row, work in works.items() if work.counts == "after first"
    }
    report = {
        "machine": about,
        "engines": engine_versions,
        "files": {each.name: each.model.name for each in taking_part},
        "ours": ours,
        "model": arguments.model.name,
        "model_bytes": arguments.model.stat().st_size,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "workloads": {row: asdict(work) for row, work in works.items()},
        "streaming_probe": "cutaway.audit.limits, over as many bytes as the weights; the best of a round is its limit",
        "results": asdict(results),
        "summary": summarise(results, ours, same_file, step_bytes) if results.streaming else {"workloads": {}},
        "memory": memory,
    }
    print("\n".join(lines_of(report)))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
