"""What each setting of the KV cache costs: time a token, positions computed a token, bytes reserved and used.

    python benchmarks/kv_cache.py MODEL.gguf [--lengths 64 256 1024] [--tokens 8] [--rounds 3] [--json FILE]
    python benchmarks/kv_cache.py MODEL.gguf --kv paged --kv-dtype f16 int8 --lengths 4096 --tokens 64

The settings take turns in each round; a cell is the median of its rounds. A prompt of so many tokens is computed, and
the tokens after it are timed. The tokens of all settings with one data type are compared: they must be the same.
"""

import argparse
import json
import statistics
import sys
from typing import Any

import numpy as np

from cutaway import LLM, SamplingParams

SETTINGS = ("none", "contiguous", "paged")
TYPES = ("f16", "f32", "int8")


def one_run(llm: LLM, length: int, tokens: int) -> dict[str, Any]:
    """Generate behind a prompt of ``length`` tokens that nothing is cached of; seconds of each token but the first."""
    prompt = np.random.default_rng(length).integers(1000, 40000, length).tolist()
    llm.reset_prefix_cache()
    before = llm.totals().tokens
    output = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=tokens + 1, ignore_eos=True))[0]
    computed = llm.totals().tokens - before - length
    seconds = output.statistics.decode_seconds
    return {
        "ms_per_token": 1e3 * seconds / tokens,
        "positions_per_token": computed / tokens,
        "reserved_bytes": output.statistics.kv_reserved_bytes,
        "used_bytes": output.statistics.kv_used_bytes,
        "token_ids": output.outputs[0].token_ids,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--kv", nargs="+", choices=SETTINGS, default=SETTINGS)
    parser.add_argument("--kv-dtype", nargs="+", choices=TYPES, default=TYPES[:1])
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json")
    options = parser.parse_args()
    settings = [(kv, kv_dtype) for kv_dtype in options.kv_dtype for kv in options.kv]
    engines = {each: LLM(options.model, kv=each[0], kv_dtype=each[1], threads=options.threads) for each in settings}
    runs: dict[tuple[tuple[str, str], int], list[dict[str, Any]]] = {}
    for round in range(options.rounds):
        for length in options.lengths:
            for each in settings:
                print(f"round {round + 1} of {options.rounds}: {length} tokens, {', '.join(each)}", file=sys.stderr)
                runs.setdefault((each, length), []).append(one_run(engines[each], length, options.tokens))
    rows = []
    print("| prompt | KV cache | ms a token | positions computed a token | reserved | used |")
    print("|---|---|---|---|---|---|")
    for length in options.lengths:
        for kv_dtype in options.kv_dtype:
            answers = {tuple(run["token_ids"]) for kv in options.kv for run in runs[(kv, kv_dtype), length]}
            assert len(answers) == 1, f"the settings disagree behind {length} tokens"
        for each in settings:
            row = {key: value for key, value in runs[each, length][0].items() if key != "token_ids"}
            row["ms_per_token"] = statistics.median(run["ms_per_token"] for run in runs[each, length])
            rows.append({"kv": each[0], "kv_dtype": each[1], "prompt_tokens": length, **row})
            print(
                f"| {length} | {', '.join(each)} | {row['ms_per_token']:.1f} | {row['positions_per_token']:.1f} | "
                f"{row['reserved_bytes'] / 1e6:.2f} MB | {row['used_bytes'] / 1e6:.2f} MB |"
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"model": options.model, "rounds": options.rounds, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
