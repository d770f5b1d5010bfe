"""What taps cost: a tapped request against itself untapped, and what the others beside it lose.

In: a model. Out: ratios, round by round and their medians. Alone: tokens a second of one request, with each set of taps
against none. Beside others: tokens a second of fifteen requests while a sixteenth runs, tapped against untapped, for
each share of the time that open steps may have; and how fast the sixteenth is.

    python benchmarks/taps.py [MODEL] [--tokens 64] [--rounds 5] [--threads N] [--json FILE]

Both sides of a ratio run in turn in each round, in one process: what else the machine does hits them alike.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from cutaway import LLM, SamplingParams, TapRequest
from cutaway.engine.open_steps import OpenShare

TAPS = {
    "one row a step": ("layers.0.resid",),
    "residual stream": ("layers.*.resid",),
    "logits": ("logits",),
    "attention of a layer": ("layers.0.attn.weights",),
    "attention of all layers": ("attn.weights",),
}
SHARES = (0.1, 0.25, 0.5)
MATES = 15


def rate(llm: LLM, prompt: list[int], params: SamplingParams, taps: TapRequest | None) -> float:
    """Tokens a second of one request, after its first token."""
    stream = llm.stream(prompt, params, taps=taps)
    next(stream)
    begin = time.perf_counter()
    count = sum(len(delta.token_ids) for delta in stream)
    return count / (time.perf_counter() - begin)


def beside(llm: LLM, prompts: list[list[int]], params: SamplingParams, taps: TapRequest | None) -> tuple[float, float]:
    """Tokens a second of all but the first prompt, while the first runs besides; and its own meanwhile."""
    one = llm.stream(prompts[0], SamplingParams(temperature=0, max_tokens=800, ignore_eos=True), taps=taps)
    next(one)
    before = llm.totals().sampled
    begin = time.perf_counter()
    llm.generate(prompts[1:], params, use_tqdm=False)
    seconds = time.perf_counter() - begin
    all_tokens = llm.totals().sampled - before
    one.close()
    mates = len(prompts[1:]) * params.max_tokens
    return mates / seconds, (all_tokens - mates) / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    llm = LLM(
        options.model, threads=options.threads, max_model_len=1024, kv_tokens=16 * 1024, enable_prefix_caching=False
    )
    core: Any = llm.engine().call(lambda core: core).result()
    params = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True)
    draw = np.random.default_rng(1)
    found: dict[str, list[float]] = {}
    for round in range(options.rounds + 1):
        prompts = draw.integers(1000, 20000, (MATES + 1, 64)).tolist()
        row: dict[str, float] = {}
        closed = rate(llm, prompts[0], params, None)
        for name, taps in TAPS.items():
            row[f"alone, {name}: tapped / untapped"] = rate(llm, prompts[0], params, TapRequest(*taps)) / closed
        mates, one = beside(llm, prompts, params, None)
        for share in SHARES:
            core._share = OpenShare(share)
            slower, tapped = beside(llm, prompts, params, TapRequest("layers.0.resid"))
            row[f"share {share}: {MATES} others beside a tapped one / beside an untapped one"] = slower / mates
            row[f"share {share}: the tapped one / untapped"] = tapped / one
        if round:  # the first warms up
            for name, value in row.items():
                found.setdefault(name, []).append(value)
    print(f"{options.model}, {llm.runner.team.size} threads, {options.rounds} rounds of {options.tokens} tokens")
    for name, values in found.items():
        print(f"{name:70s} {statistics.median(values):6.3f}   ({min(values):.3f} … {max(values):.3f})")
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
