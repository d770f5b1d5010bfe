"""A look whose error stops nothing but itself: the step that it looks into is others', too.

In: a look. Out: one that never raises, and keeps the first error; from then on it wants nothing.
"""

from collections.abc import Set
from typing import Any

from cutaway.engine.steps import Look, TapName


class GuardedLook:
    """Implements ``engine.steps.Look``. An interruption is no error of the look, and is raised."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.error: Exception | None = None

    @property
    def wanted(self) -> Set[TapName]:
        """The operations that are wanted of the step."""
        if self.error is None:
            try:
                return self._look.wanted
            except Exception as error:
                self.error = error
        return frozenset()

    def see(self, name: str, layer: int, array: Any) -> None:
        """An operation is done."""
        if self.error is None:
            try:
                self._look.see(name, layer, array)
            except Exception as error:
                self.error = error
