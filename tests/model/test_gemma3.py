"""The family gemma3 on a real file: the reference run against transformers in float32, beyond the model's window too,
the closed run against it, and the shadow check. Skipped where the file isn't in the cache.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from support.model_files import require_model
from support.rig import log_softmax
from support.shadow import exceeding, shadow_run

FIXTURES = Path(__file__).parents[1] / "fixtures"
ORACLE = FIXTURES / "gemma3_reference.npz"
MOST_DIVERGENCE = 2e-2
"""KL(reference ‖ closed) in nats, which int8 activations cost."""
CLEAR_MARGIN = 0.5
"""Nats between a greedy choice and its runner-up, beyond which int8 activations must not change it."""
WINDOW, GREEDY, SEEN = 512, 20, 100  # SEEN: so many of a prompt's last positions are compared
BEYOND = "beyond_window"

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def gemma3_gguf() -> Iterator[GGUFFile]:
    with open_gguf(require_model("gemma3-270m")) as gguf:
        yield gguf


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[int]]:
    """The long one with the oracle's greedy continuation, but for its last token."""
    listed = json.loads((FIXTURES / "gemma3_prompts.json").read_text())["prompts"]
    ids: dict[str, list[int]] = {prompt["name"]: prompt["ids"] for prompt in listed}
    return {**ids, BEYOND: ids[BEYOND] + np.load(ORACLE)[f"{BEYOND}.greedy_ids"][: GREEDY - 1].tolist()}


@pytest.fixture(scope="module")
def exact(gemma3_gguf: GGUFFile, prompts: dict[str, list[int]]) -> dict[str, Array]:
    """log-probabilities of the reference run, of each prompt's last positions."""
    runner = ReferenceRunner(gemma3_gguf, context=640, max_tokens=640)
    pages = list(range(runner.num_pages))
    return {
        name: log_softmax(runner.step(make_batch([Piece(0, ids, pages, outputs=min(SEEN, len(ids)))])))
        for name, ids in prompts.items()
    }


def test_reference_is_what_transformers_computes(exact: dict[str, Array]) -> None:
    oracle = np.load(ORACLE)
    differences = {}
    for name, rows in exact.items():
        count = len(rows) - (GREEDY - 1) * (name == BEYOND)
        candidates, theirs = oracle[f"{name}.candidates"][-count:], oracle[f"{name}.logprobs"][-count:]
        ours = np.take_along_axis(rows[:count], candidates.astype(np.int64), axis=1)
        differences[name] = float(np.abs(ours - theirs).max())
    print(differences)
    assert len(oracle[f"{BEYOND}.ids"]) == 600 > WINDOW
    assert set(differences) >= {"english", "german_french", "chinese", BEYOND}
    assert max(differences.values()) <= MOST_DIFFERENCE


def test_twenty_greedy_tokens_beyond_the_window(exact: dict[str, Array]) -> None:
    """Each the most likely after the 600 tokens and those before it; where two are as likely, either is right."""
    oracle = np.load(ORACLE)
    chosen, margins = (oracle[f"{BEYOND}.greedy_{what}"][:GREEDY] for what in ("ids", "margin"))
    clear = margins > 2 * MOST_DIFFERENCE
    assert clear.sum() >= GREEDY - 2
    assert exact[BEYOND][-GREEDY:].argmax(axis=1)[clear].tolist() == chosen[clear].tolist()


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
    gemma3_gguf: GGUFFile, exact: dict[str, Array], prompts: dict[str, list[int]]
) -> None:
    """Near the reference, the same greedy tokens, and the same bits whatever the chunks of the prompt."""
    oracle = np.load(ORACLE)
    with ModelRunner(gemma3_gguf, threads=2, context=640, max_tokens=256, max_outputs=8) as runner:
        logits = closed(runner, prompts[BEYOND], 200)
        again = closed(runner, prompts[BEYOND], 61)
    assert differing(logits, again) == 0
    ours, theirs = log_softmax(logits), exact[BEYOND][-GREEDY:]
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
