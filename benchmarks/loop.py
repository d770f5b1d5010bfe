"""What the engine's loop costs beside the compiled code: microseconds of a step, and their share of it.

    python benchmarks/loop.py [MODEL] [--tokens 256] [--rounds 5] [--batch 1] [--threads 1]
        [--temperature 0.8] [--top-p 1]

In: a model. Out: the processor time that the engine's thread takes for a step of decoding behind 128 tokens, and
for its parts. A step lasts from one entry into the compiled forward to the next. ``forward`` is the time within it;
``sampler`` that within the compiled sampler. All else is Python: planning the step, making its batch, handing it to the
team, text from tokens, counting, handing the events over. It is in the rows below, each without the compiled code;
``rest`` is what none of them has, among it the loop of the engine's thread. With one sequence, another thread receives
the events one by one, as those of a stream. A stopwatch takes half a microsecond a turn, which the share includes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cutaway import LLM, SamplingParams
from cutaway.engine import core as core_module
from cutaway.engine import runner as runner_module
from cutaway.engine.choice import Choice
from cutaway.engine.core import EngineCore
from cutaway.sampling import rows as rows_module

COMPILED = ("forward", "sampler")


class Stopwatches:
    """Seconds spent in each of some functions, without what the others within it took; one reading for each step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []  # of each step, and "step", all of it
        self._now: dict[str, float] = {}
        self._within: list[float] = []  # of the functions that are running, what others within them took
        self._begin = 0.0

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.thread_time()
            self._within.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                spent = time.thread_time() - begin
                self._now[name] = self._now.get(name, 0.0) + spent - self._within.pop()
                if self._within:
                    self._within[-1] += spent

        return timed

    def wrap_forward(self, forward: Callable[..., None]) -> Callable[..., None]:
        """The compiled forward: timed for the first member, whose entry begins a step."""
        own = self.wrap("forward", forward)

        def timed(member: Any, *arguments: Any) -> None:
            if member.rank > 0:
                forward(member, *arguments)
                return
            now = time.thread_time()
            self.steps.append({**self._now, "step": now - self._begin})
            self._now, self._begin = {}, now
            own(member, *arguments)

        return timed


def patch(watch: Stopwatches, core: EngineCore, rows: int, threads: int) -> None:
    """Put stopwatches around the parts of the loop. Where rows are shared out, the sampler's time is this thread's."""
    places: list[tuple[str, Any, str]] = [
        ("schedule", core.scheduler, "schedule"),
        ("make the batch", core._batches, "batch_of"),
        ("check the batch", core.runner, "_check"),
        ("hand to the team", core.runner, "step"),
        ("sampler", rows_module, "call_shared" if rows > 1 and threads > 1 else "choose_compiled"),
        ("sample", core_module, "find_results"),
        ("give tokens", core_module, "take_result"),
        ("text and events", Choice, "_text"),
        ("complete", core.scheduler, "complete"),
        ("count", core.totals, "count"),
        ("step of the core", core, "step"),
    ]
    for name, owner, attribute in places:
        setattr(owner, attribute, watch.wrap(name, getattr(owner, attribute)))
    setattr(runner_module, "forward_compiled", watch.wrap_forward(runner_module.forward_compiled))  # noqa: B010


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=1.0)
    options = parser.parse_args()
    llm = LLM(options.model, threads=options.threads, max_model_len=1024, kv_tokens=1024 * options.batch)
    watch = Stopwatches()
    patch(watch, llm.engine().call(lambda core: core).result(), options.batch, options.threads)
    params = SamplingParams(
        temperature=options.temperature, top_p=options.top_p, seed=1, max_tokens=options.tokens, ignore_eos=True
    )
    draw = np.random.default_rng(1)
    kept: list[dict[str, float]] = []
    for round in range(options.rounds + 1):
        prompts = draw.integers(1000, 20000, (options.batch, 128)).tolist()
        watch.steps.clear()
        if options.batch == 1:
            for _ in llm.stream(prompts[0], params):
                pass
        else:
            llm.generate(prompts, params, use_tqdm=False)
        if round:  # the first warms up
            kept += watch.steps[-options.tokens // 2 :]  # where all decode
    names = list(dict.fromkeys(name for step in kept for name in step if name != "step"))
    names.sort(key=lambda name: name not in COMPILED)
    columns = {name: np.array([1e6 * step.get(name, 0.0) for step in kept]) for name in ["step", *names]}
    columns["rest"] = columns["step"] - sum(columns[name] for name in names)
    columns["Python"] = columns["step"] - columns["forward"] - columns["sampler"]
    print(f"{options.batch} sequences, {llm.runner.team.size} threads, {len(kept)} steps; µs")
    print(f"{'':18s}{'median':>10s}{'10th percentile':>18s}")
    for name, values in columns.items():
        print(f"{name:18s}{np.median(values):10.1f}{np.percentile(values, 10):18.1f}")
    share = 100 * columns["Python"] / columns["step"]
    print(f"{'Python, % of step':18s}{np.median(share):10.1f}{np.percentile(share, 10):18.1f}")


if __name__ == "__main__":
    main()
