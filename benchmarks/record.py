"""What a record costs: the rate of decoding with each level of it, as a ratio to the rate without one, round by round.

    python benchmarks/record.py [MODEL] [--tokens 128] [--rounds 9] [--batch 1 16] [--threads 2]
        [--levels tokens operations] [--temperatures 0 0.8] [--json]

In: a model. Out: for each number of sequences, temperature and level the median ratio of the rates in one round, with
the quartiles. A round has an answer of each sequence with the record and one without, first the one and then the other,
by the same engine: two that are loaded side by side differ by where their memory lies, and keep that difference to
their end. A rate is that of the tokens after the first of each sequence.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cutaway import LLM, Record, SamplingParams
from cutaway.audit.record.levels import LEVELS
from cutaway.engine.core import EngineCore

PROMPT = 32  # tokens
WARM = 4  # tokens of the first answers, which are not counted


def rate(llm: LLM, batch: int, tokens: int, temperature: float, round_number: int) -> float:
    """Tokens a second, all sequences together."""
    rng = np.random.default_rng(round_number)
    prompts = rng.integers(100, 1000, (batch, PROMPT)).tolist()
    params = SamplingParams(temperature=temperature, seed=round_number, max_tokens=tokens, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = max(each.statistics.decode_seconds for each in outputs)
    return batch * (tokens - 1) / seconds


def set_recording(llm: LLM, record: Record, on: bool) -> None:
    """Have the engine's requests recorded, or not; none runs now."""

    def change(core: EngineCore) -> None:
        core.observers = [record] if on else []

    llm.engine().call(change).result()


def measure(llm: LLM, record: Record, batch: int, temperature: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of a setting."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(arguments.rounds + 1):
        for on in (True, False) if number % 2 else (False, True):
            set_recording(llm, record, on)
            found = rate(llm, batch, arguments.tokens if number else WARM, temperature, number)
            if number:
                rates[on].append(found)
    ratios = [own / plain for own, plain in zip(rates[True], rates[False], strict=True)]
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return {
        "batch": batch,
        "temperature": temperature,
        "level": record.level,
        "tokens_per_second": round(statistics.median(rates[True]), 1),
        "without": round(statistics.median(rates[False]), 1),
        "ratio": round(statistics.median(ratios), 4),
        "quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=["tokens", "operations"])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.tokens < 2:
        parser.error("--rounds must be 1 or more, and --tokens 2 or more: a rate has no first token.")
    options: dict[str, Any] = {
        "threads": arguments.threads,
        "max_model_len": PROMPT + arguments.tokens + 1,
        "max_num_seqs": max(arguments.batch),
        "enable_prefix_caching": False,
    }
    rows = []
    for level in arguments.levels:
        with tempfile.TemporaryDirectory() as folder:
            record = Record(Path(folder) / "answers.jsonl", level)
            with LLM(arguments.model, **options, record=record) as llm:
                rows += [
                    measure(llm, record, batch, temperature, arguments)
                    for batch in arguments.batch
                    for temperature in arguments.temperatures
                ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'level':<10}  {'sequences':>9}  {'temp.':>5}  {'tok/s':>7}  {'without':>7}  {'ratio':>6}  quartiles")
    for row in rows:
        low, high = row["quartiles"]
        print(
            f"{row['level']:<10}  {row['batch']:>9}  {row['temperature']:>5}  {row['tokens_per_second']:>7}  "
            f"{row['without']:>7}  {row['ratio']:>6.3f}  {low:.3f} to {high:.3f}"
        )


if __name__ == "__main__":
    main()
