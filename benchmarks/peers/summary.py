"""What follows from the rounds: medians with their spread, the best peer of each row, ratios round by round.

In: results. Out: plain data, which ``table`` prints and ``--json`` writes.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from peers.rounds import Results


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and extremes."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(
    results: Results, ours: str, same_file: Collection[str], step_bytes: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """For each workload the spread of every engine's rate, the best peer by its median, of all and of those that read
    the same file, and the spread of the ratio to each peer, taken round by round.

    step_bytes: for the workloads that streaming limits, the bytes of a step and the tokens that it brings: how much of
    the streaming limit of the same round Cutaway reaches.
    """
    rows: dict[str, Any] = {}
    for row, rates in results.rates.items():
        engines = {name: spread(each) for name, each in rates.items()}
        peers = sorted((name for name in engines if name != ours), key=lambda name: -engines[name]["median"])
        rows[row] = {
            "tokens_per_second": engines,
            "cannot": results.cannot[row],
            "best_peer": next(iter(peers), None),
            "best_peer_on_the_same_file": next((name for name in peers if name in same_file), None),
            "ratio_to_peer": {},
            "of_streaming_limit": None,
        }
        if ours not in rates:
            continue
        rows[row]["ratio_to_peer"] = {
            name: spread([a / b for a, b in zip(rates[ours], rates[name], strict=True)]) for name in peers
        }
        if row in step_bytes:
            size, tokens = step_bytes[row]
            limits = [limit.best * tokens / size for limit in results.streaming]
            rows[row]["of_streaming_limit"] = {
                "bytes_per_step": size,
                "limit_tokens_per_second": spread(limits),
                "reached": spread([a / b for a, b in zip(rates[ours], limits, strict=True)]),
            }
    return {
        "workloads": rows,
        "streaming_bytes_per_second": {
            name: spread([getattr(rate, name) for rate in results.streaming]) for name in ("best", "median", "worst")
        },
    }
