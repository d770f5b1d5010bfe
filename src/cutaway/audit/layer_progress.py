"""How far an open forward is, for whoever waits for it: a tap that hears of the layers as well.

In: a tap, or none yet; the rows that are computed. Out: a tap that does the same, and tells of each layer as it begins.
"""

from collections.abc import Callable
from typing import Any

Told = Callable[[str], None]
Tap = Callable[..., Any]


def nobody(text: str) -> None:
    """Where nobody waits."""


def telling(tap: Tap, told: Told, first: int, end: int, total: int, num_layers: int) -> Tap:
    """The tap. first, end: of the rows of this forward, among so many in all."""
    part = "" if end - first == total else f"tokens {first + 1:,} to {end:,} of {total:,}, "
    seen = {-1}  # outside the layers

    def heard(team: Any, name: str, layer: int, array: Any) -> None:
        if layer not in seen:
            seen.add(layer)
            told(f"{part}layer {layer + 1} of {num_layers}")
        tap(team, name, layer, array)

    return heard
