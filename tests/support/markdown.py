"""Markdown as the tests of the documentation need it: code blocks, links, and the anchors that GitHub gives headings.

In: a page's text. Out: its parts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r"^(?:<!-- (?P<marker>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_LINK = re.compile(r"\[(?P<label>[^\]\n]*(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced code block; ``marker`` is the text of an HTML comment on the line above it."""

    language: str
    text: str
    marker: str | None
    line: int  # of the fence, from 1


@dataclass(frozen=True)
class Link:
    """``[label](target)``."""

    label: str
    target: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks, in order."""
    return [
        Block(
            found["language"], found["text"], found["marker"], 1 + page.count("\n", 0, page.index("```", found.start()))
        )
        for found in _FENCE.finditer(page)
    ]


def block_behind(page: str, marker: str) -> str:
    """The text of the one block with this marker."""
    found = [block.text for block in blocks(page) if block.marker == marker]
    assert len(found) == 1, f"{len(found)} blocks are marked {marker!r}"
    return found[0]


def links(page: str) -> list[Link]:
    """All links outside code blocks."""
    return [Link(found["label"], found["target"]) for found in _LINK.finditer(_FENCE.sub("", page))]


def _headings(page: str) -> Iterator[str]:
    for found in re.finditer(r"^#{1,6} +(.*?) *$", _FENCE.sub("", page), re.MULTILINE):
        yield found[1]


def anchors(page: str) -> set[str]:
    """The fragments that lead to the page's headings: small letters, hyphens for spaces, no punctuation; a heading that
    comes again gets ``-1``, ``-2`` …
    """
    seen: dict[str, int] = {}
    found = set()
    for heading in _headings(page):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return found
