"""The family gemma3 on a real file: the reference run against transformers in float32, beyond the model's window too,
the closed run against it, and the shadow check. Skipped where the file isn't in the cache.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.engine.reference_runner import ReferenceRunner
from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import GGUFFile, open_gguf
from cutaway.model.batch import Piece, make_batch
from cutaway.model.loader import load_model
from cutaway.model.reference import load_reference
from cutaway.model.shapes import taps_of
from support.bits import differing
from support.logprobs import MOST_DIFFERENCE
from support.long import LONG
from support.model_files import require_model
from support.rig import log_softmax
from support.shadow import exceeding, shadow_run

FIXTURES = Path(__file__).parents[1] / "fixtures"
ORACLE = FIXTURES / "gemma3_reference.npz"
MOST_DIVERGENCE = 2e-2
"""KL(reference ‖ closed) in nats, which int8 activations cost."""
CLEAR_MARGIN = 0.5
"""Nats between a greedy choice and its runner-up, beyond which int8 activations must not change it."""
WINDOW, GREEDY = 512, 20
CHUNK = 100  # rows of logits at a time: a row has 262,144
BEYOND = "beyond_window"
SHORT = ("english", "german_french", "chinese", "one_token", "json", BEYOND)
FIRST_BEYOND = 0 if LONG else 500
"""Of the long prompt, the first position whose logits are looked at: most of the time is spent on these."""

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def gemma3_gguf() -> Iterator[GGUFFile]:
    with open_gguf(require_model("gemma3-270m")) as gguf:
        yield gguf


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[int]]:
    """All ten in a long run; else six. The long one with the oracle's greedy continuation, but for its last token."""
    listed = json.loads((FIXTURES / "gemma3_prompts.json").read_text())["prompts"]
    assert len(listed) == 10
    ids: dict[str, list[int]] = {each["name"]: each["ids"] for each in listed if LONG or each["name"] in SHORT}
    return {**ids, BEYOND: ids[BEYOND] + np.load(ORACLE)[f"{BEYOND}.greedy_ids"][: GREEDY - 1].tolist()}


class Exact(NamedTuple):
    """Log-probabilities of the reference run: at the oracle's candidates, of every position from the first one on
    [T - first, C]; and whole [.., V], of a prompt's last positions.
    """

    first: int
    at_candidates: Array
    last: Array


@pytest.fixture(scope="module")
def exact(gemma3_gguf: GGUFFile, prompts: dict[str, list[int]]) -> dict[str, Exact]:
    runner, oracle = ReferenceRunner(gemma3_gguf, context=640, max_tokens=CHUNK), np.load(ORACLE)
    pages = list(range(runner.num_pages))
    computed = {}
    for name, ids in prompts.items():
        candidates, seen, last = oracle[f"{name}.candidates"].astype(np.int64), [], np.empty((0, 0))
        first = FIRST_BEYOND if name == BEYOND else 0
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            looked_at = start >= first
            logits = runner.step(make_batch([Piece(start, part, pages, outputs=len(part) if looked_at else 1)]))
            if not looked_at:
                continue
            rows = log_softmax(logits)
            wanted = candidates[start : start + CHUNK]
            seen.append(np.take_along_axis(rows[: len(wanted)], wanted, axis=1))
            last = (np.concatenate([last, rows]) if last.size else rows)[-GREEDY:]
        computed[name] = Exact(first, np.concatenate(seen), last)
    return computed


def test_reference_is_what_transformers_computes(exact: dict[str, Exact]) -> None:
    """At every position of ten prompts in a long run; else of five, and of the long one beyond the window."""
    oracle = np.load(ORACLE)
    differences = {}
    for name, ours in exact.items():
        theirs = oracle[f"{name}.logprobs"][ours.first :]
        assert ours.at_candidates.shape == theirs.shape == (len(oracle[f"{name}.ids"]) - ours.first, 49)
        differences[name] = float(np.abs(ours.at_candidates - theirs).max())
    print(differences)
    assert len(oracle[f"{BEYOND}.ids"]) == 600 > WINDOW
    assert len(differences) == (10 if LONG else len(SHORT))
    assert max(differences.values()) <= MOST_DIFFERENCE


def test_twenty_greedy_tokens_beyond_the_window(exact: dict[str, Exact]) -> None:
    """Each the most likely after the 600 tokens and those before it; where two are as likely, either is right."""
    oracle = np.load(ORACLE)
    chosen, margins = (oracle[f"{BEYOND}.greedy_{what}"][:GREEDY] for what in ("ids", "margin"))
    clear = margins > 2 * MOST_DIFFERENCE
    assert clear.sum() >= GREEDY - 2
    assert exact[BEYOND].last.argmax(axis=1)[clear].tolist() == chosen[clear].tolist()


def closed(runner: ModelRunner, ids: list[int], chunk: int) -> Array:
    """Log-probabilities of the last positions: the prompt in chunks, then the greedy tokens one by one."""
    pages = list(range(runner.kv.num_pages))
    prompt = len(ids) - (GREEDY - 1)
    cuts = [*range(0, prompt, chunk), *range(prompt, len(ids) + 1)]
    rows = [
        np.array(runner.step(make_batch([Piece(start, ids[start:end], pages, outputs=min(8, end - start))])))
        for start, end in itertools.pairwise(cuts)
    ]
    return np.concatenate([row[-1:] for row in rows[-GREEDY:]])


def test_closed_run_decodes_beyond_the_window(
    gemma3_gguf: GGUFFile, exact: dict[str, Exact], prompts: dict[str, list[int]]
) -> None:
    """Near the reference, the same greedy tokens, and the same bits whatever the chunks of the prompt."""
    oracle = np.load(ORACLE)
    with ModelRunner(gemma3_gguf, threads=2, context=640, max_tokens=256, max_outputs=8) as runner:
        logits = closed(runner, prompts[BEYOND], 200)
        again = closed(runner, prompts[BEYOND], 61)
    assert differing(logits, again) == 0
    ours, theirs = log_softmax(logits), exact[BEYOND].last
    divergence = (np.exp(theirs) * (theirs - ours)).sum(axis=1)
    print(f"KL(reference ‖ closed) {divergence.mean():.2e} nats, at most {divergence.max():.2e}")
    assert 1e-6 < divergence.mean() < MOST_DIVERGENCE
    clear = oracle[f"{BEYOND}.greedy_margin"][:GREEDY] > CLEAR_MARGIN
    assert clear.any()
    assert ours.argmax(axis=1)[clear].tolist() == oracle[f"{BEYOND}.greedy_ids"][:GREEDY][clear].tolist()


def test_every_operation_of_a_real_run(gemma3_gguf: GGUFFile) -> None:
    loaded, (config, exact_record) = load_model(gemma3_gguf, threads=2), load_reference(gemma3_gguf)
    assert config.windows == (WINDOW,) * 5 + (0,) + (WINDOW,) * 5 + (0,) + (WINDOW,) * 5 + (0,)
    assert [rope.base for rope in config.ropes] == [1_000_000.0, 10_000.0]
    assert {"head_norm", "attention_post_norm", "ffn_post_norm"} <= set(taps_of(config))
    assert exceeding(shadow_run(loaded, exact_record, "f32")) == {}
