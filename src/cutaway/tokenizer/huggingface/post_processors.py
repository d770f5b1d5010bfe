"""The ``post_processor`` of a ``tokenizer.json``: the special tokens that it puts around a text.

In: the component. Out: the token before the text, if there is one, and those behind it.
"""

from typing import NamedTuple

from cutaway.tokenizer.huggingface.component import Component

KNOWN = "TemplateProcessing, ByteLevel, Sequence"


class Around(NamedTuple):
    """What is put around a text: pieces."""

    before: list[str]
    behind: list[str]


def read_post_processor(component: Component | None) -> Around:
    """What is put around a text.

    Raises:
        ModelFileError: a component is malformed or not supported.
    """
    if component is None or component.type == "ByteLevel":  # which changes offsets only
        return Around([], [])
    if component.type == "Sequence":
        around = [read_post_processor(each) for each in component.children("processors")]
        return Around(
            [piece for each in around for piece in each.before], [piece for each in around for piece in each.behind]
        )
    if component.type != "TemplateProcessing":
        component.refuse_type(KNOWN)
    around_text = Around([], [])
    seen = False
    for part in component.children("single"):
        special = part.child("SpecialToken")
        if special is None:
            seen = True
        else:
            (around_text.behind if seen else around_text.before).append(special.text("id"))
    return around_text
