"""What the definition hands to each operation: weights, tables, scales, windows; all that does not come from the step.

In: the model by definition. Out: the forward's calls in order, each with its arguments, ``GIVEN`` in the place of what
a step brings: batch, workspace, cache. The engine has its own record of the same numbers; were a base of rotary
positions or an epsilon wrong there, a check with the engine's own would find nothing.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cutaway.model.forward import rebind
from cutaway.model.records import Model
from cutaway.ops import reference


class _Given:
    """Stands for anything of a step, its parts and its sizes."""

    def __getattr__(self, name: str) -> "_Given":
        return self

    def __getitem__(self, key: Any) -> "_Given":
        return self


GIVEN: Final = _Given()


class DefinedCall(NamedTuple):
    """One operation of the forward."""

    operation: str
    arguments: tuple[Any, ...]  # behind the team


def calls_of(exact: Model) -> list[DefinedCall]:
    """Every operation that a step runs, in order, but the tap."""
    calls: list[DefinedCall] = []

    def noting(name: str) -> Callable[..., None]:
        def note(team: Any, *arguments: Any) -> None:
            if name != "tap":
                calls.append(DefinedCall(name, arguments))

        return note

    rebind({name: noting(name) for name in reference.TABLE}, "forward_noted")(None, exact, GIVEN, GIVEN, GIVEN)
    return calls
