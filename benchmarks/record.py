"""What a record costs: the rate of decoding with each level of it, as a ratio to the rate without one, round by round.

    python benchmarks/record.py [MODEL] [--tokens 128] [--rounds 9] [--batch 1 16] [--threads 2]
        [--levels tokens operations] [--temperature 0.8] [--json]

In: a model. Out: for each number of sequences and each level the median ratio of the rates in one round, with the
quartiles. The engines, one without a record and one for each level, are loaded side by side and take turns; each writes
its record to a temporary folder. A rate is that of the tokens after the first of each sequence.
"""

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cutaway import LLM, Record, SamplingParams
from cutaway.audit.record.levels import LEVELS

NONE = "none"
PROMPT = 32  # tokens
WARM = 4  # tokens of each engine's first answer, which is not counted


def rate(llm: LLM, batch: int, tokens: int, temperature: float, round_number: int) -> float:
    """Tokens a second, all sequences together."""
    rng = np.random.default_rng(round_number)
    prompts = rng.integers(100, 1000, (batch, PROMPT)).tolist()
    params = SamplingParams(temperature=temperature, seed=round_number, max_tokens=tokens, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = max(each.statistics.decode_seconds for each in outputs)
    return batch * (tokens - 1) / seconds


def measure(engines: dict[str, LLM], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each batch and level. Each round begins with another engine."""
    names, rows = list(engines), []
    for batch in arguments.batch:
        rates: dict[str, list[float]] = {name: [] for name in names}
        for name in names:
            rate(engines[name], batch, WARM, arguments.temperature, 0)
        for number in range(1, arguments.rounds + 1):
            for place in range(len(names)):
                name = names[(number + place) % len(names)]
                rates[name].append(rate(engines[name], batch, arguments.tokens, arguments.temperature, number))
        for name in names[1:]:
            ratios = [own / plain for own, plain in zip(rates[name], rates[NONE], strict=True)]
            quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
            rows.append(
                {
                    "batch": batch,
                    "level": name,
                    "tokens_per_second": round(statistics.median(rates[name]), 1),
                    "without": round(statistics.median(rates[NONE]), 1),
                    "ratio": round(statistics.median(ratios), 4),
                    "quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=["tokens", "operations"])
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        options: dict[str, Any] = {
            "threads": arguments.threads,
            "max_model_len": PROMPT + arguments.tokens + 1,
            "max_num_seqs": max(arguments.batch),
            "enable_prefix_caching": False,
        }
        engines = {NONE: stack.enter_context(LLM(arguments.model, **options))}
        for level in arguments.levels:
            record = Record(Path(folder) / f"{level}.jsonl", level)
            engines[level] = stack.enter_context(LLM(arguments.model, **options, record=record))
        rows = measure(engines, arguments)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'sequences':>9}  {'level':<10}  {'tok/s':>7}  {'without':>7}  {'ratio':>6}  quartiles")
    for row in rows:
        low, high = row["quartiles"]
        print(
            f"{row['batch']:>9}  {row['level']:<10}  {row['tokens_per_second']:>7}  {row['without']:>7}  "
            f"{row['ratio']:>6.3f}  {low:.3f} to {high:.3f}"
        )


if __name__ == "__main__":
    main()
