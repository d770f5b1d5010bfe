"""A gate before a model's steps, for tests that must know how many are computed, and when."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cutaway import LLM
from cutaway.ops.cpu.arrays import Batch, Floats
from support.http_server import until
from support.patience import SECONDS


class Gate:
    """Each step waits until it is let through."""

    def __init__(self) -> None:
        self.steps = 0  # that were let through
        self.raises: BaseException | None = None  # in place of the next step
        self._open = False
        self._allowed = 0
        self._changed = threading.Condition()

    def allow(self, steps: int) -> None:
        """Let so many more steps through."""
        with self._changed:
            self._allowed += steps
            self._changed.notify_all()

    def step_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let steps through until it is so: what is asked of the engine is done between two of them."""

        def stepped() -> bool:
            if condition():
                return True
            self.allow(1)
            return False

        until(stepped, what)

    def open(self) -> None:
        """Let all through."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Before a step."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._open or self._allowed > 0, SECONDS)
            self._allowed -= not self._open
            self.steps += 1
            if self.raises is not None:
                error, self.raises = self.raises, None
                raise error


@contextmanager
def gated(llm: LLM) -> Iterator[Gate]:
    """The model with a closed gate, which is opened and taken away at the end."""
    gate, step = Gate(), llm.runner.step

    def step_through(batch: Batch) -> Floats:
        gate.wait()
        return step(batch)

    llm.runner.step = step_through  # type: ignore[method-assign]
    try:
        yield gate
    finally:
        gate.open()
        llm.engine().call(lambda core: None).result(SECONDS)
        del llm.runner.step
