"""The patterns of ``tokenizer.json``: a text as it is, or a regular expression in the syntax of Oniguruma.

In: a ``pattern`` object. Out: a pattern of the ``regex`` package that matches the same.
"""

from typing import Any

import regex  # type: ignore[import-untyped]

from cutaway.tokenizer.huggingface.component import Component

# As in Oniguruma, $ matches before every line end, and sets may stand within sets.
ONIGURUMA = regex.MULTILINE | regex.VERSION1

# Classes of Oniguruma that the ``regex`` package has otherwise, or not at all; ² ³ ¹ ¼ ½ ¾ are of the class of words
# outside of sets only.
WORD_IN_SET = r"\w--[\u200c\u200d]"
WORD = r"\w\xb2\xb3\xb9\xbc-\xbe--[\u200c\u200d]"
HEXADECIMAL = {"h": "[0-9a-fA-F]", "H": "[^0-9a-fA-F]"}
OUTSIDE = {"w": f"[{WORD}]", "W": f"[^{WORD}]", **HEXADECIMAL}
IN_SET = {"w": f"[{WORD_IN_SET}]", "W": f"[^{WORD_IN_SET}]", **HEXADECIMAL}
PARTS = regex.compile(r"\\.|\[:\^?\w+:\]|.", regex.DOTALL)


def from_oniguruma(source: str) -> str:
    """The pattern, with its classes as the ``regex`` package writes them."""
    depth = 0  # of sets
    parts: list[str] = []
    for part in PARTS.findall(source):
        if part == "[":
            depth += 1
        elif part == "]" and depth:
            depth -= 1
        elif part[0] == "\\":
            part = (IN_SET if depth else OUTSIDE).get(part[1:], part)
        parts.append(part)
    return "".join(parts)


def read_pattern(component: Component) -> Any:
    """The compiled pattern of a component.

    Raises:
        ModelFileError: it has none, or it can't be compiled.
    """
    given = component.child("pattern")
    if given is None:
        component.refuse("has no pattern")
    if "String" in given.fields:
        return regex.compile(regex.escape(given.text("String"), literal_spaces=True))
    source = given.text("Regex")
    try:
        return regex.compile(from_oniguruma(source), ONIGURUMA)
    except regex.error as error:
        given.refuse(f"is {source[:200]!r} ({error})")
