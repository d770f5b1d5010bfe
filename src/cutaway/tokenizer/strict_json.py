"""What Python's reader of JSON lets through and JSON doesn't have: hooks for ``json.loads`` that refuse it.

In: a constant, a number, the pairs of an object. Out: their value, or a ValueError.
Source: RFC 8259. Python takes NaN and Infinity, makes large numbers infinite, and of a key twice it loses a value.
"""

from typing import Any, NoReturn


def no_constant(name: str) -> NoReturn:
    """For ``parse_constant``."""
    raise ValueError(f"{name} is no number of JSON")


def finite(number: str) -> float:
    """For ``parse_float``."""
    value = float(number)
    if abs(value) == float("inf"):
        raise ValueError(f"{number[:40]} is larger than any float")
    return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For ``object_pairs_hook``: an object; one that has a key twice says two things."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:100]!r} is there twice")
    return found
