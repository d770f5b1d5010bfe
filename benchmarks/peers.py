"""Cutaway against llama.cpp: the same GGUF file, one machine, one run, interleaved round by round.

Comes in: a GGUF file and the interpreter of an environment that has llama-cpp-python. Goes out: a table, and
with `--json` everything behind it: machine, versions, settings, the figures of every round. Each engine lives
in a process of its own and waits on a pipe while another one works, so that memory and threads do not mix.

    python -m venv peers
    CMAKE_ARGS=-DGGML_NATIVE=ON peers/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    python benchmarks/peers.py MODEL.gguf --peer-python peers/bin/python --json peers.json
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "prompts.json"
CONTEXT = 1024  # tokens an engine must hold: the longest row and its new tokens
PROBE_SECONDS = 0.3  # of each of the three probes of a round
SETTLE_SECONDS = 0.1  # an engine's threads may spin for a moment after their last step; let them fall asleep

Arrivals = list[tuple[float, int]]  # (seconds since the request, tokens received so far), one a delta


# Workloads: what is asked for, and the rate read off the arrivals.


@dataclass(frozen=True)
class Workload:
    """One row of the table. `rate` is in tokens a second."""

    name: str
    prompt_tokens: int
    new_tokens: int
    rate: Callable[["Workload", Arrivals], float]


def decode_rate(_: Workload, arrivals: Arrivals) -> float:
    """Tokens after the first delta over the time since it: prefill is left out, the sampler is in."""
    (first_time, first_count), (last_time, last_count) = arrivals[0], arrivals[-1]
    return (last_count - first_count) / (last_time - first_time)


def prefill_rate(workload: Workload, arrivals: Arrivals) -> float:
    """Prompt tokens over the time to the first new token."""
    return workload.prompt_tokens / arrivals[0][0]


WORKLOADS = (
    Workload("decode 1, context 128", 128, 64, decode_rate),
    Workload("prefill 512", 512, 1, prefill_rate),
)


def prompt_of(corpus: list[int], length: int, shift: int) -> list[int]:
    """`length` ids of the corpus from place `shift` on, around its end. Another shift is another prompt from
    its first tokens on, so that no engine can reuse what it computed for an earlier one."""
    return [corpus[(shift + i) % len(corpus)] for i in range(length)]


# Engines: each is built inside its own worker process.


class Engine(ABC):
    """One engine with one model loaded."""

    @abstractmethod
    def __init__(self, model: Path, threads: int) -> None: ...

    @abstractmethod
    def info(self) -> dict[str, str]:
        """Versions and build, for the record."""

    @abstractmethod
    def tokens(self, prompt: list[int], new_tokens: int) -> Iterator[int]:
        """Decode greedily, past any end of sequence; for each delta yield how many tokens it brought."""

    def forget(self) -> None:  # noqa: B027  (most engines start every request afresh)
        """Drop the state of the last request; not timed."""


class Cutaway(Engine):
    def __init__(self, model: Path, threads: int) -> None:
        from cutaway import LLM

        self.llm = LLM(model, threads=threads)

    def info(self) -> dict[str, str]:
        return {"python": platform.python_version()} | {n: version(n) for n in ("cutaway", "numba", "numpy")}

    def tokens(self, prompt: list[int], new_tokens: int) -> Iterator[int]:
        from cutaway import SamplingParams

        parameters = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        for delta in self.llm.stream(prompt, parameters):
            yield len(delta.token_ids)


class LlamaCpp(Engine):
    """What the ways of driving llama.cpp share: file, threads, batches as long as the longest prompt."""

    flash_attention = False

    def __init__(self, model: Path, threads: int) -> None:
        import llama_cpp

        self.api = llama_cpp
        self.llama = llama_cpp.Llama(
            str(model),
            n_ctx=CONTEXT,
            n_batch=512,
            n_ubatch=512,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=self.flash_attention,
            verbose=False,
        )

    def info(self) -> dict[str, str]:
        return {
            "python": platform.python_version(),
            "llama_cpp_python": version("llama_cpp_python"),
            "system_info": self.api.llama_print_system_info().decode().strip(),
        }


class LlamaCppDecode(LlamaCpp):
    """The C API: llama_decode and a greedy sampler chain."""

    def __init__(self, model: Path, threads: int) -> None:
        super().__init__(model, threads)
        self.sampler = self.api.llama_sampler_chain_init(self.api.llama_sampler_chain_default_params())
        self.api.llama_sampler_chain_add(self.sampler, self.api.llama_sampler_init_greedy())

    def forget(self) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.llama.ctx), True)

    def tokens(self, prompt: list[int], new_tokens: int) -> Iterator[int]:
        context, token_type = self.llama.ctx, self.api.llama_token
        tokens = (token_type * len(prompt))(*prompt)  # a batch holds a bare pointer: both arrays must stay alive
        following = (token_type * 1)()
        batch = self.api.llama_batch_get_one(tokens, len(prompt))
        for _ in range(new_tokens):
            if code := self.api.llama_decode(context, batch):
                raise RuntimeError(f"llama_decode returned {code}")
            following[0] = self.api.llama_sampler_sample(self.sampler, context, -1)
            batch = self.api.llama_batch_get_one(following, 1)
            yield 1


class LlamaCppDecodeFlash(LlamaCppDecode):
    """The same with llama.cpp's flash attention."""

    flash_attention = True


class LlamaCppGenerate(LlamaCpp):
    """The Python API: Llama.generate."""

    def forget(self) -> None:
        self.llama.reset()

    def tokens(self, prompt: list[int], new_tokens: int) -> Iterator[int]:
        generation = self.llama.generate(prompt, temp=0.0)
        for _ in range(new_tokens):
            next(generation)
            yield 1


OURS = "Cutaway"
PEERS: dict[str, type[Engine]] = {
    "llama.cpp C API": LlamaCppDecode,
    "llama.cpp C API, flash attention": LlamaCppDecodeFlash,
    "llama.cpp Llama.generate": LlamaCppGenerate,
}
ENGINES: dict[str, type[Engine]] = {OURS: Cutaway, **PEERS}


def time_arrivals(engine: Engine, prompt: list[int], new_tokens: int) -> Arrivals:
    engine.forget()
    arrivals: Arrivals = []
    received = 0
    start = time.perf_counter()
    for count in engine.tokens(prompt, new_tokens):
        received += count
        arrivals.append((time.perf_counter() - start, received))
    if received != new_tokens:
        raise RuntimeError(f"{received} tokens came, {new_tokens} were asked for")
    return arrivals


def serve_engine(name: str, model: Path, threads: int) -> None:
    """The worker: one JSON request a line on stdin, one JSON answer a line on the original stdout."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not mix with the answers
    engine = ENGINES[name](model, threads)
    print(json.dumps(engine.info()), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(
            json.dumps(time_arrivals(engine, request["prompt"], request["new_tokens"])),
            file=answers,
            flush=True,
        )


class Worker:
    """The parent's end of one engine's process. As a context manager it ends the process."""

    def __init__(self, name: str, python: Path, model: Path, threads: int) -> None:
        self.name = name
        command = [str(python), __file__, str(model), "--threads", str(threads), "--worker", name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.info: dict[str, str] = self._answer()

    def measure(self, prompt: list[int], new_tokens: int) -> Arrivals:
        assert self.process.stdin is not None
        print(json.dumps({"prompt": prompt, "new_tokens": new_tokens}), file=self.process.stdin, flush=True)
        return [(seconds, count) for seconds, count in self._answer()]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit(f"the worker of {self.name} ended with code {self.process.wait()}; see above")
        return json.loads(line)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # closes its stdin, on which it ends


# The comparison.


def streaming_probe(threads: int) -> Callable[[], float]:
    """The streaming limit: bytes a second that a team reads, the median over 0.3 s of repetitions."""
    # Only here: the workers run this file in environments without Cutaway.
    from cutaway.audit.limits import measure_limits
    from cutaway.ops.cpu.threads import ThreadTeam

    team = ThreadTeam(threads)
    return lambda: measure_limits(team, probe_seconds=PROBE_SECONDS).stream.median


@dataclass
class Round:
    streaming_bytes_per_second: float
    tokens_per_second: dict[str, dict[str, float]]  # workload → engine → rate


def run_rounds(
    workers: list[Worker], corpus: list[int], rounds: int, streaming_read: Callable[[], float]
) -> list[Round]:
    """Every round measures the streaming limit, then each workload on each engine; the first engine rotates.
    Before the first round each engine does every workload once, unrecorded."""
    results = []
    for number in range(-1, rounds):
        rates: dict[str, dict[str, float]] = {}
        streaming = streaming_read()
        turn = max(number, 0) % len(workers)
        for workload in WORKLOADS:
            prompt = prompt_of(corpus, workload.prompt_tokens, shift=7 * (number + 1))
            rates[workload.name] = {}
            for worker in workers[turn:] + workers[:turn]:
                time.sleep(SETTLE_SECONDS)
                arrivals = worker.measure(prompt, workload.new_tokens)
                rates[workload.name][worker.name] = workload.rate(workload, arrivals)
        if number >= 0:
            results.append(Round(streaming, rates))
    return results


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(rounds: list[Round]) -> dict[str, Any]:
    """For each workload the spread of every engine's rate, the best peer by its median, and the spread of the
    ratio to each peer, taken round by round; beside them the spread of the streaming limit."""
    rows: dict[str, Any] = {}
    for workload in (w.name for w in WORKLOADS):
        rates = [r.tokens_per_second[workload] for r in rounds]
        engines = {name: spread([rate[name] for rate in rates]) for name in ENGINES}
        rows[workload] = {
            "tokens_per_second": engines,
            "best_peer": max(PEERS, key=lambda name: engines[name]["median"]),
            "ratio_to_peer": {name: spread([rate[OURS] / rate[name] for rate in rates]) for name in PEERS},
        }
    streaming = spread([r.streaming_bytes_per_second for r in rounds])
    return {"workloads": rows, "streaming_bytes_per_second": streaming}


def machine() -> dict[str, Any]:
    cpu = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "load_average_before": os.getloadavg()[0],
    }


def print_table(report: dict[str, Any]) -> None:
    summary, about = report["summary"], report["machine"]
    print(f"{about['cpu']}, {about['cores']} cores, load before {about['load_average_before']:.2f}")
    print(
        f"{report['model']}, {report['threads']} threads, {len(report['rounds'])} interleaved rounds; "
        "medians [min, max]; tokens a second\n"
    )
    for workload, row in summary["workloads"].items():
        print(workload)
        for name, rate in row["tokens_per_second"].items():
            line = f"  {name:34} {rate['median']:8.1f} [{rate['min']:.1f}, {rate['max']:.1f}]"
            if name != OURS:
                ratio = row["ratio_to_peer"][name]
                line += f"   Cutaway / this: {ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"
                line += "  <- best peer" * (name == row["best_peer"])
            print(line)
    streaming = summary["streaming_bytes_per_second"]
    low, middle, high = (streaming[key] / 1e9 for key in ("min", "median", "max"))
    probe = report["streaming_probe"]
    print(f"\nstreaming read, same rounds ({probe}): {middle:.1f} GB/s [{low:.1f}, {high:.1f}]")
    bound = streaming["median"] / report["model_bytes"]
    print(f"one pass over the file ({report['model_bytes'] / 1e6:.1f} MB) a token: {bound:.0f} tokens a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--peer-python", type=Path, help="interpreter of the environment with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        serve_engine(arguments.worker, arguments.model, arguments.threads)
        return
    if arguments.peer_python is None:
        parser.error("--peer-python is needed")
    for path in (arguments.model, arguments.peer_python):
        if not path.is_file():
            parser.error(f"no file {path}")
    if arguments.rounds < 5:
        parser.error(f"--rounds {arguments.rounds}: a median needs at least 5")

    about = machine()
    corpus = [i for prompt in json.loads(PROMPTS.read_text())["prompts"] for i in prompt["ids"]]
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(name, python, arguments.model, arguments.threads))
            for name in ENGINES
            for python in [Path(sys.executable) if name == OURS else arguments.peer_python]
        ]
        rounds = run_rounds(workers, corpus, arguments.rounds, streaming_probe(arguments.threads))
        engines = {worker.name: worker.info for worker in workers}
    report = {
        "machine": about,
        "engines": engines,
        "model": arguments.model.name,
        "model_bytes": arguments.model.stat().st_size,
        "threads": arguments.threads,
        "streaming_probe": "cutaway.audit.limits, median of each round",
        "rounds": [vars(r) for r in rounds],
        "summary": summarise(rounds),
    }
    print_table(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
