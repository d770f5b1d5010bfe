"""What one rendering of a chat template may use: an allowance of material, and seconds.

In: what the sandbox is about to make or has just made. Out: nothing, or an error once the allowance or the time is
used up. One unit stands for one character of text; every other thing is priced by its size in memory, so that a
unit is never more than about 8 bytes, and the allowance bounds the memory of a rendering.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, MappingView
from dataclasses import dataclass
from typing import Any

from jinja2.utils import Namespace

from cutaway.errors import ModelFileError
from cutaway.tokenizer.template_source import UNSOUND

OBJECT = 100  # units for a new text, list or mapping: a MarkedText takes about 500 bytes before its first character
ELEMENT = 10  # for a place in a list and a number in it
ENTRY = 20  # for a key and a value in a mapping
NUMBER_TEXT = 24  # for a float: the most characters that it prints


@dataclass(frozen=True)
class RenderLimits:
    """What one rendering may use: units of material in all, and seconds."""

    material: int = 2**22
    seconds: float = 3.0


class Allowance:
    """What is left of the limits."""

    def __init__(self, limits: RenderLimits) -> None:
        self.left = limits.material
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds

    def spend(self, amount: int) -> None:
        """Charge an amount of material, and look at the clock.

        Raises:
            ModelFileError: the allowance or the time is used up.
        """
        self.left -= amount + 1
        if self.left < 0:
            raise ModelFileError(
                f"the chat template creates more than {self._limits.material} characters and elements and is "
                f"stopped there; {UNSOUND}"
            )
        if time.monotonic() > self._deadline:
            raise ModelFileError(
                f"the chat template runs for more than {self._limits.seconds:g} s and is stopped there; {UNSOUND}"
            )

    def spend_on(self, value: Any) -> None:
        """Charge what a value prints: everything in it, as often as it is in it."""
        open_values = [value]
        while open_values:
            item = open_values.pop()
            if isinstance(item, Namespace):  # as it is now: it may have got its values after it was made
                item = getattr(item, "_Namespace__attrs")  # noqa: B009 (Jinja offers no other way)
            if isinstance(item, str):
                self.spend(len(item))
            elif isinstance(item, int):
                self.spend(item.bit_length() // 3)
            elif isinstance(item, float):
                self.spend(NUMBER_TEXT)
            elif isinstance(item, Mapping):
                self.spend(ENTRY * len(item))
                open_values += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple, MappingView)):
                self.spend(ELEMENT * len(item))
                open_values += item  # type: ignore[arg-type]  # views are iterable
            else:
                self.spend(0)

    def metered(self, values: Iterable[Any], price: int = ELEMENT) -> Iterator[Any]:
        """The values one by one, each charged before it is handed on; the characters of a text are new objects."""
        if isinstance(values, str):
            price = max(price, OBJECT)
        for value in values:
            self.spend(price)
            yield value
