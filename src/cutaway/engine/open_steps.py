"""Open steps: when they may be run, and who sees what in them.

In: how long steps took; a step whose pieces are all watched. Out: whether the next one may be open; who looks into it.
"""

from collections.abc import Mapping

from cutaway.engine.generation import Generation
from cutaway.engine.watched import StepRows, Watched
from cutaway.ops.cpu.arrays import Batch
from cutaway.scheduler.step import Step


class OpenShare:
    """Lets open steps take a share of the time: after one that took t seconds, closed steps are owed t (1 - s) / s.

    It is one step at least. Where there is nothing to be computed closed, the scheduler plans an open step whatever is
    owed.
    """

    def __init__(self, share: float) -> None:
        """share: s, between 0 and 1."""
        self._factor = (1 - share) / share
        self._owed = 0.0  # seconds
        self._opened = False  # by the last step

    @property
    def may_open(self) -> bool:
        """Whether closed steps have had what they were owed."""
        return self._owed <= 0 and not self._opened

    def count(self, step: Step, seconds: float) -> None:
        """A step took so long."""
        self._opened = step.is_open
        self._owed = seconds * self._factor if step.is_open else max(0.0, self._owed - seconds)


def watching(step: Step, generations: Mapping[str, Generation], batch: Batch) -> list[Watched]:
    """Those who look into an open step; each is told which rows are its own request's."""
    rows: dict[str, list[StepRows]] = {}  # by request
    token = output = 0
    for piece in step.pieces:
        tokens = slice(token, token + piece.num_tokens)
        outputs = slice(output, output + piece.num_outputs)
        token, output = tokens.stop, outputs.stop
        own = StepRows(piece.sequence.choices[0], batch, tokens, outputs)
        rows.setdefault(piece.sequence.request.id, []).append(own)
    found = []
    for name, own_rows in rows.items():
        watched = generations[name].watched
        if watched is not None:
            watched.begin(own_rows)
            found.append(watched)
    return found
