"""The runner's tapped steps: what is shown of them, beside the open run of the same step, and what an error does."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.engine import runner as runner_module
from cutaway.engine.runner import ModelRunner
from cutaway.engine.steps import TapName
from cutaway.errors import CutawayError
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


def test_an_interruption_while_compiled_code_runs_is_raised(runner: ModelRunner) -> None:
    """Python raises it with the first bytecode that runs, which is behind the call by compiled code. None is lost, and
    no step counts that was not shown.
    """
    whole = make_batch([Piece(0, [*IDS, *IDS, *IDS], [0, 1, 2, 3, 4, 5, 6], 1)])
    runner.prepare_tapped()

    def look_on() -> None:
        begun.set()
        patience = time.monotonic() + 300
        while time.monotonic() < patience:
            eye = Eye([("logits", -1)])
            runner.step_tapped(whole, [eye])
            assert eye.seen

    def interrupt(seconds: float) -> None:
        begun.wait()
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)

    for count in range(10):
        begun = threading.Event()
        thread = threading.Thread(target=interrupt, args=(count / 1000,))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            look_on()
        thread.join()


def test_what_could_not_be_shown_is_an_error(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may have no memory for the call."""
    make = runner_module._SHOW
    monkeypatch.setattr(runner_module, "_SHOW", lambda show: make(lambda place: None))
    with pytest.raises(CutawayError, match="of 2 operations of a step, 0 could be shown"):
        runner.step_tapped(make_batch(PIECES), [Eye([("embed", -1), ("logits", -1)])])


class _Weak(Eye):
    """Can be referred to weakly."""


@pytest.mark.parametrize("error", [None, ZeroDivisionError("of the test")])
def test_nothing_is_kept_of_who_has_looked(runner: ModelRunner, error: BaseException | None) -> None:
    """He may hold what a request has shown: it is given back with him, and not when Python looks for cycles."""
    gc.collect()
    gc.disable()
    try:
        eye = _Weak([("embed", -1), ("logits", -1)], error)
        there = weakref.ref(eye)
        try:
            runner.step_tapped(make_batch(PIECES), [eye])
        except ZeroDivisionError:
            assert error is not None
        if error is not None:
            error.__traceback__ = None  # whose frames knew him
        del eye
        assert there() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "again",
    [
        lambda runner: runner.step(make_batch(PIECES)),
        lambda runner: runner.step_tapped(make_batch(PIECES), [Eye([])]),
        lambda runner: runner.step_timed(make_batch(PIECES)),
        lambda runner: runner.step_open(make_batch(PIECES), lambda name, layer, array: None),
        lambda runner: runner.hidden_states(make_batch(PIECES)),
    ],
    ids=["closed", "tapped", "timed", "open", "hidden states"],
)
def test_a_step_within_a_step_is_an_error(runner: ModelRunner, again: Callable[[ModelRunner], object]) -> None:
    """It would wait for ever, or write into the memory of the step that it looks into."""
    closed = runner.step(make_batch(PIECES)).tobytes()
    count, errors = runner.num_steps, list[str]()

    class Again(Eye):
        def see(self, name: str, layer: int, array: Any) -> None:
            with pytest.raises(CutawayError, match="within a step") as caught:
                again(runner)
            errors.append(str(caught.value))

    assert runner.step_tapped(make_batch(PIECES), [Again([("attention", 3), ("embed", -1)])]).tobytes() == closed
    assert len(errors) == 2
    assert runner.num_steps == count + 1
    again(runner)  # the team is free again


def test_a_step_after_a_fork_is_an_error(runner: ModelRunner) -> None:
    """It would wait for threads that the new process doesn't have; one thread alone waits for nobody."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            for step in (runner.step, lambda batch: runner.step_tapped(batch, [Eye([("embed", -1)])])):
                try:
                    step(make_batch(PIECES))
                    os.write(writer, b"computed\n")
                except CutawayError as error:
                    os.write(writer, str(error).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    patience = threading.Timer(300, lambda: os.kill(process, signal.SIGKILL))
    patience.start()
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    patience.cancel()
    os.waitpid(process, 0)
    assert said.count("computed") == 2 * (runner.team.size == 1)
    assert said.count(f"are those of process {os.getpid()}, and a fork takes none along") == 2 * (runner.team.size > 1)
