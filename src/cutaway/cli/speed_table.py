"""Speeds in the shape of llama-bench's table, for people and for programs.

In: ``Speed`` of each workload, of one engine or of several. Out: a rich table and sentences, or plain data for JSON.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from cutaway.audit.speed import OURS, Speed
from cutaway.cli.console import quantity
from cutaway.cli.tables import plain_table


def speed_table(speeds: Sequence[Speed]) -> Table:
    """A row for each workload: the median of tokens a second and its spread, of each engine; how many times as fast as
    each other engine Cutaway is, round by round.
    """
    peers = [name for name in speeds[0].rates if name != OURS]
    table = plain_table("Speed, tokens a second")
    table.add_column("test", no_wrap=True)
    for name in (OURS, *peers):
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column(Text("[slowest, fastest]"), no_wrap=True)
    for name in peers:
        table.add_column(f"{OURS} / {name}", justify="right", no_wrap=True)
    for speed in speeds:
        cells = [speed.workload.name]
        for name in (OURS, *peers):
            cells += [f"{speed.median(name):,.1f}", _interval(speed.rates[name], ",.1f")]
        for name in peers:
            ratios = speed.ratios(OURS, name)
            cells.append(f"{statistics.median(ratios):.2f} {_interval(ratios, '.2f')}")
        table.add_row(*map(Text, cells))  # not strings, in which brackets would be markup
    return table


def _interval(values: Sequence[float], form: str) -> str:
    return f"[{min(values):{form}}, {max(values):{form}}]"


def speed_explanation(speeds: Sequence[Speed], model: str, model_bytes: int, threads: int) -> list[str]:
    """What was measured, what the names mean, and how."""
    prompt, answer, together = (speed.workload for speed in speeds)
    rounds = len(speeds[0].rates[OURS])
    turns = ", in which the engines take turns" if len(speeds[0].rates) > 1 else ""
    return [
        f"{model}, {quantity(model_bytes, 'B')} of weights, {threads} thread{'s' * (threads != 1)}.",
        f"{prompt.name}: a prompt of {prompt.prompt_tokens:,} tokens, to the first new one. {answer.name}: an answer "
        f"of {answer.new_tokens} tokens from an empty context. {together.name}: {together.sequences} answers of "
        f"{together.new_tokens} together.",
        f"Greedy, the sampler included; medians of {rounds} rounds{turns}.",
    ]


def speed_dict(speeds: Sequence[Speed], engines: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Plain data. engines: versions of the other engines."""
    return {"tests": [speed.as_dict() for speed in speeds], "engines": {name: dict(of) for name, of in engines.items()}}
