"""The contract of same bits over random schedules: whatever shares a step with a token, however its prompt is cut,
where its pages lie, on one thread or two, its logits are those of its sequence alone.

Thirty schedules; a thousand with CUTAWAY_LONG_TESTS=1. Each is a function of its number, so that one that fails can be
run again by its name. Small random models of two families stand for all: the operations are the same, and one has
windows, soft caps and norms of what a block adds.
"""

import os
from typing import Any

import numpy as np
import pytest

from cutaway.formats.gguf import open_gguf
from cutaway.model.loader import LoadedModel, load_model
from support.bits import differing
from support.rig import Logits, Pages, Part, Step, run_schedule
from support.tiny_families import write_case

FAMILIES = ("llama", "gemma2")
SCHEDULES = 1_000 if os.environ.get("CUTAWAY_LONG_TESTS") == "1" else 30
LENGTHS = (1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 129, 200, 500)  # around the borders of pages, sub-tiles and tiles
PARTS = (1, 1, 1, 2, 3, 7, 8, 9, 16, 17, 50, 64, 200)
VOCAB = 100  # ids that every model has


def sequences_of(rng: np.random.Generator) -> list[list[int]]:
    """One to nine, some of which begin alike."""
    shared = rng.integers(0, VOCAB, 40).tolist()
    made: list[list[int]] = []
    for length in rng.choice(LENGTHS, rng.integers(1, 10)):
        own = rng.integers(0, VOCAB, int(length)).tolist()
        made.append((shared[: rng.integers(0, 41)] + own)[: int(length)])
    return made


def steps_of(rng: np.random.Generator, lengths: list[int]) -> list[Step]:
    """Until all are done: parts of some of the sequences, in any order."""
    done = [0] * len(lengths)
    steps: list[Step] = []
    share = rng.uniform(0.2, 1.0)
    while any(d < length for d, length in zip(done, lengths, strict=True)):
        step: list[Part] = []
        for number in rng.permutation(len(lengths)).tolist():
            left = lengths[number] - done[number]
            if left and rng.random() < share:
                count = min(left, int(rng.choice(PARTS)))
                step.append(Part(number, done[number], done[number] + count))
                done[number] += count
        if step:
            steps.append(step)
    return steps


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    with open_gguf(write_case(tmp_path_factory.mktemp("tiny") / "tiny.gguf", request.param)) as gguf:
        return load_model(gguf, threads=2)


def alone(loaded: LoadedModel, sequences: list[list[int]], pages: Pages) -> Logits:
    """Each sequence in one step of its own, on one thread."""
    logits: Logits = {}
    for number, ids in enumerate(sequences):
        whole = run_schedule(loaded, [ids], [[Part(0, 0, len(ids))]], pages=pages)
        logits |= {(number, position): row for (_, position), row in whole.items()}
    return logits


@pytest.mark.parametrize("number", range(SCHEDULES))
def test_a_row_s_bits_depend_on_its_sequence_alone(loaded: LoadedModel, number: int) -> None:
    rng = np.random.default_rng(number)
    sequences = sequences_of(rng)
    steps = steps_of(rng, [len(ids) for ids in sequences])
    data_type = str(rng.choice(["f16", "f32", "int8"]))
    fill = float(rng.choice([np.nan, np.inf, 0.0]))
    pages = Pages(int(rng.choice([16, 32, 128])), int(rng.integers(1 << 30)), fill, data_type)
    logits = run_schedule(loaded, sequences, steps, threads=int(rng.choice([1, 2])), pages=pages)
    expected = alone(loaded, sequences, Pages(data_type=data_type))
    assert set(logits) == set(expected)
    wrong = [place for place, row in logits.items() if differing(row, expected[place])]
    assert wrong == []
    assert all(np.isfinite(row).all() for row in logits.values())


def test_the_schedules_are_what_they_say() -> None:
    """Parts of several lengths side by side, prompts cut and whole, steps of one token and of many."""
    seen: list[Any] = [steps_of(np.random.default_rng(n), [1, 17, 65, 129, 200]) for n in range(SCHEDULES)]
    sizes = [[part.end - part.start for part in step] for steps in seen for step in steps]
    assert any(len(set(step)) >= 3 for step in sizes)
    assert {1, 200} <= {size for step in sizes for size in step}
    assert [1] in sizes


def test_a_changed_token_is_seen_in_its_own_sequence_alone(loaded: LoadedModel) -> None:
    """The control: another token changes what follows it, and nothing of its batch-mate."""
    ids = [[n % VOCAB for n in range(40)], [(7 * n + 1) % VOCAB for n in range(40)]]
    expected = alone(loaded, ids, Pages())
    mixed: list[Step] = [[Part(0, 0, 20)], [Part(1, 0, 20)], [Part(0, 20, 40), Part(1, 20, 40)]]
    right = run_schedule(loaded, ids, mixed)
    assert not any(differing(row, expected[place]) for place, row in right.items())
    changed = [[*ids[0][:19], (ids[0][19] + 1) % VOCAB, *ids[0][20:]], ids[1]]
    wrong = run_schedule(loaded, changed, mixed)
    assert any(differing(wrong[0, position], expected[0, position]) for position in range(20, 40))
    assert not any(differing(wrong[1, position], expected[1, position]) for position in range(40))
