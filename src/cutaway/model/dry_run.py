"""What a step will show: its taps in the order in which the forward reaches them, with the arrays that it will show.

In: a model, a batch, the workspace. Out: names, layers and arrays; nothing is computed. The forward itself runs over
operations that do nothing, so that no second list of its taps is kept.
"""

from typing import Any, NamedTuple

from cutaway.model.forward import rebind
from cutaway.model.records import Model, Workspace
from cutaway.ops import cpu
from cutaway.ops.cpu.arrays import Batch


class Shown(NamedTuple):
    """One tap of a step."""

    name: str
    layer: int  # -1 outside the layers
    array: Any  # the workspace's own memory, as long as the step's rows


def shown_by_step(model: Model, batch: Batch, workspace: Workspace) -> list[Shown]:
    """All taps. Of the batch only the numbers of its tokens and of its rows of logits count."""
    shown: list[Shown] = []

    def note(team: Any, name: str, layer: int, array: Any) -> None:
        shown.append(Shown(name, layer, array))

    def nothing(*arguments: Any) -> None:
        pass

    dry: dict[str, Any] = {**dict.fromkeys(cpu.__all__, nothing), "tap": note}
    rebind(dry, "forward_dry")(None, model, batch, None, workspace)
    return shown
