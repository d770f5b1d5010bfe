"""Looking into steps: what the engine offers to whoever wants to see the tensors of a request while it is computed.

In: a ``Tapping``, which says what is to be seen and knows how to keep it. Out: for each step that is run open, the rows
of one request, operation by operation. The engine knows nothing of what is done with them.
"""

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from cutaway.engine.guarded_look import GuardedLook
from cutaway.engine.outputs import TappedRows
from cutaway.engine.steps import TapName
from cutaway.ops.cpu.arrays import Batch

if TYPE_CHECKING:
    from cutaway.engine.runner import ModelRunner


class StepRows(NamedTuple):
    """Which rows of an open step are those of one sequence of a request."""

    choice: int  # whose they are; the first one, as long as several have the same tokens
    batch: Batch
    tokens: slice  # of the T rows
    outputs: slice  # of the O rows


class Watch(Protocol):
    """What looks at the steps of one request; what it keeps of a step counts once the step does."""

    num_bytes: int  # that it will keep, at most
    needs_all_logits: bool  # of the prompt, not of its last token alone

    def describe(self) -> str:
        """What ``num_bytes`` are for, to be told where they are too many."""

    def prepare(self) -> None:
        """Before the first step, once ``num_bytes`` are allowed: compile what no step shall wait for."""

    def begin(self, rows: Sequence[StepRows]) -> None:
        """A step begins, maybe the last one once more: that one did not count. rows: of each sequence that it has."""

    @property
    def wanted(self) -> Set[TapName]:
        """The operations that it wants to see in this step, by name and layer."""

    def see(self, name: str, layer: int, array: Any) -> None:
        """What one of them wrote, all rows of the step: the engine's own buffer, to be copied."""

    def keep(self) -> None:
        """The step counts; it may be said once for each sequence."""

    def result(self) -> Mapping[str, TappedRows]:
        """All that was kept so far; any thread may ask."""


@runtime_checkable
class Tapping(Protocol):
    """What a request wants to be shown of its steps."""

    def watch(self, runner: "ModelRunner", prompt_ids: Sequence[int], max_new_tokens: int, num_choices: int) -> Watch:
        """A watch for one request, of so many answers. Raises InvalidRequestError for what there isn't to be seen."""


class Watched(GuardedLook):
    """A watch whose errors are its own request's: the others of the step don't notice. It looks into each step of the
    request.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self.watch = watch

    def begin(self, rows: Sequence[StepRows]) -> None:
        """A step begins."""
        if self.error is None:
            try:
                self.watch.begin(rows)
            except Exception as error:
                self.error = error
