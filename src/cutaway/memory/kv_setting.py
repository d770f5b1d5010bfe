"""The KV cache as a setting: no cache, a contiguous one, or a paged one, which differ in two facts.

In: a name. Out: how long a page is, and whether keys and values outlive the step that computed them. There is one pool
and one attention; "contiguous" is a page as long as a context, and "none" is a cache that is dropped after each step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cutaway.errors import InvalidRequestError
from cutaway.ops.cpu.kv_tiles import SUBTILE

PAGE_LENGTH: Final = SUBTILE  # positions of a small page


@dataclass(frozen=True)
class KVSetting:
    """How a sequence keeps its keys and values."""

    name: str
    keeps: bool  # between steps; else every step computes all positions again
    whole_context: bool  # one page for all positions that a sequence may ever have, reserved at once

    def page_length(self, context: int) -> int:
        """Positions of a page, a multiple of 16; context: positions of a sequence at most."""
        return -(-context // SUBTILE) * SUBTILE if self.whole_context else PAGE_LENGTH


KV_SETTINGS: Final[Mapping[str, KVSetting]] = MappingProxyType(
    {
        each.name: each
        for each in (
            KVSetting("none", keeps=False, whole_context=False),
            KVSetting("contiguous", keeps=True, whole_context=True),
            KVSetting("paged", keeps=True, whole_context=False),
        )
    }
)


def kv_setting(name: str) -> KVSetting:
    """The setting of this name: "none", "contiguous" or "paged"."""
    if not isinstance(name, str) or name not in KV_SETTINGS:
        raise InvalidRequestError(
            f"kv is {name!r}; it must be one of {', '.join(KV_SETTINGS)}. Leave it out for paged.", "kv"
        )
    return KV_SETTINGS[name]
