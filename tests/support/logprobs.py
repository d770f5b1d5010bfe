"""Whole distributions after each position of prompts, by the reference run and by the closed one, and how far they are
from each other and from an oracle's.

In: a model, prompts by name. Out: log-probabilities [T, V] for each, in float64, nats.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.model.config import ModelConfig
from cutaway.model.loader import LoadedModel
from cutaway.model.records import Model
from support.rig import Logits, Pages, Part, log_softmax, run_reference, run_schedule

MOST_DIFFERENCE = 2e-3
"""Of a logprob to transformers', in nats. transformers computes in float32, which alone makes some 1e-4."""

Prompts = Mapping[str, list[int]]
Logprobs = dict[str, npt.NDArray[np.float64]]  # by prompt: [T, V]


def _rows(logits: Logits, sequence: int, length: int) -> npt.NDArray[np.float64]:
    return log_softmax(np.stack([logits[sequence, position] for position in range(length)]))


def reference_logprobs(config: ModelConfig, record: Model, prompts: Prompts) -> Logprobs:
    """By the reference run; all prompts in one ragged step."""
    step = [Part(number, 0, len(ids)) for number, ids in enumerate(prompts.values())]
    logits = run_reference(config, record, list(prompts.values()), [step])
    return {name: _rows(logits, number, len(ids)) for number, (name, ids) in enumerate(prompts.items())}


def closed_logprobs(loaded: LoadedModel, prompts: Prompts, kv_dtype: str = "f16") -> Logprobs:
    """By the compiled forward; each prompt in a step of its own."""
    return {
        name: _rows(
            run_schedule(loaded, [ids], [[Part(0, 0, len(ids))]], threads=2, pages=Pages(data_type=kv_dtype)),
            0,
            len(ids),
        )
        for name, ids in prompts.items()
    }


def differences_from_oracle(ours: Logprobs, oracle: Any, prompts: Prompts) -> dict[str, float]:
    """For each prompt, the greatest |difference| over the candidates that ``make_reference_fixture.py`` wrote down."""
    differences = {}
    for name, ids in prompts.items():
        assert oracle[f"{name}.ids"].tolist() == ids
        candidates, theirs = oracle[f"{name}.candidates"], oracle[f"{name}.logprobs"]
        assert candidates.shape == (len(ids), 49)
        at_candidates = np.take_along_axis(ours[name], candidates.astype(np.int64), axis=1)
        differences[name] = float(np.abs(at_candidates - theirs).max())
    return differences


def misranked(ours: Logprobs, oracle: Any, prompts: Prompts) -> dict[str, int]:
    """For each prompt, at how many positions the most likely token is another, though the oracle's runner-up is further
    away than the two computations are from each other.
    """
    wrong = {}
    for name in prompts:
        candidates, theirs = oracle[f"{name}.candidates"], oracle[f"{name}.logprobs"]
        clear = theirs[:, 0] - theirs[:, 1] > 2 * MOST_DIFFERENCE
        wrong[name] = int((ours[name].argmax(axis=1) != candidates[:, 0])[clear].sum())
    return wrong


def divergences(exact: Logprobs, ours: Logprobs) -> npt.NDArray[np.float64]:
    """KL(exact ‖ ours) at each position of all prompts, in nats."""
    return np.concatenate([(np.exp(exact[name]) * (exact[name] - ours[name])).sum(axis=1) for name in exact])


def mean_divergence(exact: Logprobs, ours: Logprobs) -> float:
    """KL(exact ‖ ours), the mean over all positions of all prompts, in nats."""
    return float(divergences(exact, ours).mean())
