"""The runner's tapped steps: what is shown of them, beside the open run of the same step, and what an error does."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.engine.runner import ModelRunner
from cutaway.engine.steps import TapName
from cutaway.formats.open_model import open_model
from cutaway.model.batch import Piece, make_batch
from cutaway.model.shapes import taps_of

IDS = list(range(100, 137))
PIECES = [Piece(0, IDS, [0, 1, 2], 3), Piece(0, IDS[5:12], [3], 1), Piece(0, [9], [4], 1)]


class Eye:
    """A ``Look`` that copies what it is shown."""

    def __init__(self, wanted: Iterable[TapName], fails: BaseException | None = None) -> None:
        """fails: is raised when it is shown something."""
        self.wanted, self.fails = set(wanted), fails
        self.seen: list[tuple[TapName, bytes]] = []

    def see(self, name: str, layer: int, array: Any) -> None:
        self.seen.append(((name, layer), array.tobytes()))
        if self.fails is not None:
            raise self.fails


@pytest.fixture(scope="module", params=[1, 3])
def runner(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[ModelRunner]:
    with (
        open_model(smollm2_path) as source,
        ModelRunner(source, threads=request.param, context=128, max_outputs=8) as loaded,
    ):
        yield loaded


@pytest.fixture
def opened(runner: ModelRunner) -> list[tuple[TapName, bytes]]:
    """All that the open run shows of the step, in its order, of what the model has."""
    found: list[tuple[TapName, bytes]] = []
    runner.step_open(make_batch(PIECES), lambda name, layer, array: found.append(((name, layer), array.tobytes())))
    has = taps_of(runner.config)
    return [each for each in found if each[0][0] in has]


def test_all_is_shown_with_the_bits_of_the_open_run(runner: ModelRunner, opened: list[tuple[TapName, bytes]]) -> None:
    eye = Eye({name for name, _ in opened})
    closed = np.array(runner.step(make_batch(PIECES)))
    for array in (runner.workspace.qkv, runner.workspace.x, runner.workspace.logits):
        array[:] = np.nan
    logits = runner.step_tapped(make_batch(PIECES), [eye])
    assert logits.tobytes() == closed.tobytes()
    assert [name for name, _ in eye.seen] == [name for name, _ in opened]
    different = [name for (name, seen), (_, expected) in zip(eye.seen, opened, strict=True) if seen != expected]
    # Rows of a quantised buffer that are behind the step's hold anything.
    assert [name for name in different if not name[0].endswith("_input")] == []


def test_each_is_shown_what_it_wants(runner: ModelRunner, opened: list[tuple[TapName, bytes]]) -> None:
    shown = dict(opened)
    layers = [("ffn_residual", layer) for layer in range(0, runner.config.num_layers, 7)]
    eyes = [Eye(layers), Eye([("logits", -1), ("ffn_residual", 7)]), Eye([]), Eye([("no such", 3), ("embed", -1)])]
    runner.step_tapped(make_batch(PIECES), eyes)
    wanted: list[list[TapName]] = [layers, [("ffn_residual", 7), ("logits", -1)], [], [("embed", -1)]]
    for eye, names in zip(eyes, wanted, strict=True):
        assert eye.seen == [(name, shown[name]) for name in names]


@pytest.mark.parametrize("error", [ZeroDivisionError("of the test"), KeyboardInterrupt()])
def test_an_error_comes_after_the_step(
    runner: ModelRunner, opened: list[tuple[TapName, bytes]], error: BaseException
) -> None:
    """Nobody is left in a barrier, nobody is shown anything more, and the next step is as ever."""
    first, last = Eye([("norm", -1), ("embed", -1)], error), Eye([("logits", -1)])
    with pytest.raises(type(error)):
        runner.step_tapped(make_batch(PIECES), [first, last])
    assert [name for name, _ in first.seen] == [("embed", -1)]
    assert last.seen == []
    runner.step_tapped(make_batch(PIECES), [last])
    assert last.seen == [(("logits", -1), dict(opened)["logits", -1])]


def test_steps_of_all_sizes(runner: ModelRunner) -> None:
    """What a step shows is kept for the next one of its size: a size that comes again, and others between."""
    for count in (1, 5, 1, 37, 5, 37, 1):
        eye = Eye([("logits", -1), ("attention", 3)])
        runner.step_tapped(make_batch([Piece(0, IDS[:count], [0, 1, 2], 1)]), [eye])
        found: dict[TapName, bytes] = {}
        runner.step_open(
            make_batch([Piece(0, IDS[:count], [0, 1, 2], 1)]),
            lambda name, layer, array, found=found: found.__setitem__((name, layer), array.tobytes()),
        )
        assert dict(eye.seen) == {name: found[name] for name in eye.wanted}
