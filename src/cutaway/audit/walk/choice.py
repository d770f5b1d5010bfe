"""Step 4 of the walk: how one token is chosen, sampling step by sampling step.

In: the logits of one position, the parameters, the noise's key. Out: ``Choice``: what each step dropped, the best
candidates with their probability after each step, their noise and the sum of both, and the winner. The winner is the
sampler's own; probabilities and sums are computed here for display, in float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.walk.vectors import largest, log_softmax
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.choose import STEPS
from cutaway.sampling.history import History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, noise_row, sample_open
from cutaway.tokenizer.tokenizer import Tokenizer

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

MODEL: Final = "model"
"""The name of the probabilities before any step."""

LEAVE_DISTANCES: Final = frozenset({"temperature", "top_k", "top_p", "min_p"})
"""The steps after which a probability is proportional to e^-distance; after the others it is to e^logit."""

LIKELIEST: Final = 12
NEAREST: Final = 5  # candidates with the largest sums


@dataclass(frozen=True)
class ChoiceStep:
    """What one sampling step did."""

    name: str
    touched: int  # tokens whose logit it changed, or that it dropped; for the temperature all, unless it is 1
    kept: int  # tokens that can still be drawn
    mass: float  # what the kept ones had together before this step

    @property
    def changed(self) -> bool:
        """Whether it did anything."""
        return self.touched > 0


@dataclass(frozen=True)
class Candidate:
    """A token that could be, or could have been, chosen."""

    id: int
    piece: str
    rank: int  # 1 + how many the model itself holds for likelier
    logit: float
    probabilities: Mapping[str, float]  # "model", then after each step, under its name; 0 once dropped
    noise: float | None  # None where nothing is drawn
    total: float | None  # ln of the last probability + noise; None where nothing is drawn, or not this token


@dataclass(frozen=True)
class Choice:
    """How the token at a position was chosen."""

    position: int
    temperature: float
    greedy: bool  # temperature 0: the largest logit wins and nothing is drawn
    steps: tuple[ChoiceStep, ...]
    candidates: tuple[Candidate, ...]  # the likeliest ones and those with the largest sums, by rank
    winner: Candidate
    runner_up: Candidate | None  # who would have won without the winner; None if nobody


class _Opened(NamedTuple):
    """One choice as arrays over the vocabulary."""

    params: SamplingParams
    winner: int
    steps: tuple[ChoiceStep, ...]
    logs: Mapping[str, Doubles]  # [V] ln of the probabilities: "model", then after each step
    noise: Doubles | None  # [V]
    totals: Doubles  # [V]


def see_choices(
    logits: Floats,
    each_params: Sequence[SamplingParams],
    key: NoiseKey,
    scratch: SamplerScratch,
    history: History,
    tokenizer: Tokenizer,
) -> tuple[Choice, ...]:
    """Choose the token at ``key.position`` from the logits [V], once for each of the parameters.

    All choices show the same candidates. Raises what the sampler raises.
    """
    opened = [_open(logits, params, key, scratch, history) for params in each_params]
    nearest = [[i for i in largest(each.totals, NEAREST) if np.isfinite(each.totals[i])] for each in opened]
    found = {*largest(logits, LIKELIEST), *(each.winner for each in opened)}.union(*nearest)
    rank = {i: 1 + int(np.count_nonzero(logits > logits[i])) for i in found}
    shown = sorted(found, key=lambda i: (rank[i], i))

    def candidate(each: _Opened, i: int) -> Candidate:
        drawn = each.noise is not None and np.isfinite(each.totals[i])
        return Candidate(
            id=i,
            piece=tokenizer.piece(i),
            rank=rank[i],
            logit=float(logits[i]),
            probabilities={name: float(np.exp(values[i])) for name, values in each.logs.items()},
            noise=None if each.noise is None else float(each.noise[i]),
            total=float(each.totals[i]) if drawn else None,
        )

    def choice(each: _Opened, ids: Sequence[int]) -> Choice:
        others = [i for i in ids if i != each.winner]
        return Choice(
            position=key.position,
            temperature=each.params.temperature,
            greedy=each.noise is None,
            steps=each.steps,
            candidates=tuple(candidate(each, i) for i in shown),
            winner=candidate(each, each.winner),
            runner_up=candidate(each, others[0]) if others else None,
        )

    return tuple(choice(each, ids) for each, ids in zip(opened, nearest, strict=True))


def _open(logits: Floats, params: SamplingParams, key: NoiseKey, scratch: SamplerScratch, history: History) -> _Opened:
    """Run the sampler's steps one by one, and keep what each left."""
    V = len(logits)
    seen: dict[str, Array] = {}

    def keep(name: str, values: Array) -> None:
        seen[name] = np.array(values[:V])

    with float_environment():
        result = sample_open(logits, params, key, scratch, history, keep)
        # Not the parameter decides: a temperature that is 0 in float32 is greedy, too.
        noise = np.array(noise_row(key, V), np.float64) if "temperature" in seen else None
    last = log_softmax(logits)
    logs = {MODEL: last}
    values: Array = logits
    steps = []
    for name in STEPS:
        if name not in seen:
            continue  # temperature 0 takes no more steps
        left = seen[name]
        after = log_softmax(-left if name in LEAVE_DISTANCES else left)
        if name == "temperature":  # the first distances come from logits, so that they differ from these in any case
            touched = 0 if params.temperature == 1 else V
        else:
            touched = int(np.count_nonzero(left != values))
        kept = np.isfinite(after)
        steps.append(ChoiceStep(name, touched, int(np.count_nonzero(kept)), float(np.exp(last[kept]).sum())))
        logs[name], last, values = after, after, left
    return _Opened(params, result.token_id, tuple(steps), logs, noise, last + (0.0 if noise is None else noise))
