"""A number of bytes as people write it: ``2GiB``, ``1.5 GB``, ``512M``.

In: a text or an integer. Out: bytes.
"""

import re
from math import inf
from numbers import Integral
from typing import Final

from cutaway.errors import InvalidRequestError, shown

UNITS: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
PATTERN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)


def parse_bytes(given: object, field: str) -> int:
    """Bytes, 1 at least. Raises InvalidRequestError that names ``field``."""
    if isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= 1:  # NumPy's, too
        return int(given)
    if isinstance(given, str):
        found = PATTERN.fullmatch(given)
        if found is not None and found[2].lower() in UNITS:
            size = float(found[1]) * UNITS[found[2].lower()]
            if 1 <= size < inf:
                return int(size)
    raise InvalidRequestError(
        f"{field} is {shown(given):.100}; it must be 1 byte at least, such as '2GiB', '500MB' or the integer "
        "2147483648.",
        field,
    )
