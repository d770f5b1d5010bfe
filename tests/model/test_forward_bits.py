"""Same bits, always: a token's logits depend on nothing but its own sequence. Every comparison is of all bits.

The baseline is each sequence alone, whole, on one thread, in pages of 16.
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.model.forward import forward_timed, rebind
from cutaway.model.loader import LoadedModel
from cutaway.model.shapes import LAYER_TAPS, STEP_TAPS
from cutaway.ops.cpu.clock import new_clocks
from cutaway.ops.cpu.threads import _set_float_environment
from cutaway.ops.cpu.tiles.q4_1 import BYTES, SCALE
from cutaway.ops.numerics import NUMERICS_VERSION
from support.bits import differing
from support.golden import golden_runs
from support.machines import CONTROL_BITS, FLUSH_TO_ZERO, lesser_environments
from support.rig import Logits, Pages, Part, Step, chunks, run_schedule

GOLDEN = Path(__file__).parents[1] / "fixtures" / "numerics.json"


@pytest.fixture(scope="module")
def sequences(prompts: dict[str, list[int]]) -> list[list[int]]:
    """Sixteen, from one token to 200: two and more of attention's tiles, ends at every kind of place."""
    names = ["long", "code", "chinese", "emoji", "numbers", "german_french", "json", "chat"]
    lengths = [200, 104, 65, 64, 33, 17, 16, 15, 1, 2, 8, 9, 31, 47, 48, 49]
    return [prompts[names[i % len(names)]][i // len(names) :][:length] for i, length in enumerate(lengths)]


@pytest.fixture(scope="module")
def baseline(smollm2: LoadedModel, sequences: list[list[int]]) -> Logits:
    logits: Logits = {}
    for number, ids in enumerate(sequences):
        alone = run_schedule(smollm2, [ids], [[Part(0, 0, len(ids))]])
        logits |= {(number, position): row for (_, position), row in alone.items()}
    return logits


def assert_same(logits: Logits, baseline: Logits) -> None:
    assert logits, "nothing was computed"
    wrong = {place: differing(row, baseline[place]) for place, row in logits.items()}
    assert {place: count for place, count in wrong.items() if count} == {}
    assert all(np.isfinite(row).all() for row in logits.values())


def ragged_steps(sequences: list[list[int]], seed: int) -> list[Step]:
    """Until all are done: parts of random lengths of a random choice of sequences, in random order."""
    rng = np.random.default_rng(seed)
    done = [0] * len(sequences)
    steps: list[Step] = []
    while any(d < len(ids) for d, ids in zip(done, sequences, strict=True)):
        step = []
        for number in rng.permutation(len(sequences)):
            left = len(sequences[number]) - done[number]
            if left and rng.random() < 0.8:
                count = min(left, int(rng.choice([1, 1, 2, 7, 16, 50])))
                step.append(Part(int(number), done[number], done[number] + count))
                done[number] += count
        if step:
            steps.append(step)
    return steps


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_prompt_in_chunks(smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits, chunk: int) -> None:
    ids = sequences[0][:130]
    logits = run_schedule(smollm2, [ids], chunks(0, len(ids), chunk))
    assert len(logits) == 130
    assert_same(logits, baseline)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_ragged_batch_of_sixteen_on_any_threads(
    smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits, threads: int
) -> None:
    steps = ragged_steps(sequences, seed=threads)
    assert any(len(step) > 8 and len({part.end - part.start for part in step}) > 2 for step in steps)
    logits = run_schedule(smollm2, sequences, steps, threads=threads)
    assert set(logits) == set(baseline)
    assert_same(logits, baseline)


@pytest.mark.parametrize("threads", [2, 3])
def test_a_sequence_alone_on_several_threads(
    smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits, threads: int
) -> None:
    """Prefill and single tokens, whose attention is split over the team."""
    ids = sequences[0]
    steps: list[Step] = [[Part(0, 0, 190)], *([Part(0, position, position + 1)] for position in range(190, 200))]
    assert_same(run_schedule(smollm2, [ids], steps, threads=threads), baseline)


@pytest.mark.parametrize(
    "pages",
    [
        Pages(16, order=1),
        Pages(16, order=2),
        Pages(128, order=3),
        Pages(256),
        Pages(16, fill=0.0),
        Pages(16, fill=float("inf")),
    ],
    ids=str,
)
def test_pages_of_any_length_order_and_former_content(
    smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits, pages: Pages
) -> None:
    """256 positions hold a whole context here. The baseline's slots held NaN."""
    some = [sequences[0], sequences[5], sequences[3]]
    steps: list[Step] = [[Part(1, 0, 9), Part(0, 0, 150)], [Part(0, 150, 200), Part(2, 0, 64), Part(1, 9, 17)]]
    logits = run_schedule(smollm2, some, steps, pages=pages)
    numbers = {0: 0, 1: 5, 2: 3}
    assert_same({(numbers[number], position): row for (number, position), row in logits.items()}, baseline)


def test_open_and_timed_are_closed(smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits) -> None:
    """Open: the same code object run by CPython with a tap in its place, which sees every operation."""
    some = sequences[:2]
    steps: list[Step] = [[Part(0, 0, 61), Part(1, 0, 30)], [Part(1, 30, 31), Part(0, 61, 62)]]
    seen: list[tuple[str, int]] = []

    def look(team: Any, name: str, layer: int, array: Any) -> None:
        seen.append((name, layer))

    open_forward = rebind({"tap": look})
    assert_same(run_schedule(smollm2, some, steps, forward=open_forward), baseline)
    layers = smollm2.config.num_layers
    assert len(seen) == len(steps) * (len(STEP_TAPS) + layers * len(LAYER_TAPS))
    assert set(seen) == {(n, -1) for n in STEP_TAPS} | {(n, l) for n in LAYER_TAPS for l in range(layers)}

    for threads in (1, 2):
        clocks = new_clocks(threads, len(seen) // len(steps))
        assert_same(run_schedule(smollm2, some, steps, forward=forward_timed, threads=threads, notes=clocks), baseline)
        assert (clocks[:, 0] == 1 + len(seen) // len(steps)).all(), "a tap left no stamp"


def test_the_callers_float_environment_does_not_matter(
    smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits
) -> None:
    """A library that the caller loaded may have switched flush-to-zero on; it finds its own state again."""
    before = _set_float_environment(FLUSH_TO_ZERO)
    try:
        logits = run_schedule(smollm2, [sequences[1]], [[Part(0, 0, 104)]], threads=2)
        after = _set_float_environment(before)
    finally:
        _set_float_environment(before)
    assert after & CONTROL_BITS == FLUSH_TO_ZERO & CONTROL_BITS
    assert_same({(1, position): row for (_, position), row in logits.items()}, baseline)


def test_one_flipped_bit_of_one_scale_changes_logits(
    smollm2: LoadedModel, sequences: list[list[int]], baseline: Logits
) -> None:
    """The control: the comparison sees the least change of one weight of one layer, in the matrix whose products go
    to the residual as they are. (Behind the others, rounding to int8 may swallow it.)
    """
    down = smollm2.record.layers[11, 6]
    assert down["tile_bytes"] == smollm2.config.ffn_width // 32 * BYTES, "not Q4_1"
    scale = ctypes.c_uint16.from_address(int(down["tiles"]) + 2 * int(down["tile_bytes"]) + SCALE + 2 * 9)
    scale.value ^= 1
    try:
        logits = run_schedule(smollm2, [sequences[6]], [[Part(0, 0, 16)]])
    finally:
        scale.value ^= 1
    assert sum(differing(row, baseline[6, position]) for (_, position), row in logits.items()) > 0
    assert_same(
        {(6, p): row for (_, p), row in run_schedule(smollm2, [sequences[6]], [[Part(0, 0, 16)]]).items()}, baseline
    )


@pytest.fixture(scope="module")
def digests(smollm2_path: Path) -> dict[str, str]:
    """Of the golden runs in this process."""
    return golden_runs(smollm2_path)


def test_the_bits_are_those_of_this_numerics_version(digests: dict[str, str]) -> None:
    """Where this fails, bits have changed. If that was meant, raise NUMERICS_VERSION and write the new digests with
    support/golden.py; otherwise the change breaks every recorded trace and receipt.
    """
    golden = json.loads(GOLDEN.read_text())
    assert golden["numerics_version"] == NUMERICS_VERSION
    assert digests == golden["sha256"]


@pytest.mark.skipif(not lesser_environments(), reason="this processor has one lowering: the golden digests compare it")
def test_all_lowerings_of_this_processor_agree(smollm2_path: Path, digests: dict[str, str]) -> None:
    """In processes that have less and less of its instructions, AVX2 at last, down to NumPy: this process's bits."""
    command = [sys.executable, "-m", "support.golden", str(smollm2_path)]
    for lowering, environment in lesser_environments().items():
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr[-3000:]
        report = json.loads(result.stdout)
        assert report["lowering"] == lowering
        assert report["sha256"] == digests
