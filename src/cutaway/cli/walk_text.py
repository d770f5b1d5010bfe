"""How a walk speaks: numbers, pieces and paragraphs that fit the terminal.

In: numbers, pieces of text, tokens. Out: short strings, measured in cells: a Chinese character is two cells wide.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.table import Table
from rich.text import Text

from cutaway.audit.walk.tokens import SeenToken
from cutaway.errors import counted

WIDEST_TEXT: Final = 100  # cells of a paragraph's lines, however wide the terminal is
WIDEST_PIECE: Final = 16
SPACE: Final = "␣"
GRID_HEAD: Final = 40  # of a long prompt, the tokens shown from its beginning …
GRID_TAIL: Final = 60  # … and from its end

WORD: Final = re.compile(
    r"""(?: \[[\w·+/,\ ]+\]  # a shape: [T, D]
        | \d\ (?=%|back|[kMGT]?(?:B|op)\b)  # a number and what it counts
        | ['"]\ +(?=\S) | \ +(?=['"]) | \ {2,}  # spaces that a line's end would hide, at a text's edges and within
        | [^ ] )+""",
    re.VERBOSE,
)
"""What stays on one line of a paragraph."""


def clipped(text: str, cells: int) -> str:
    """At most so many cells, the end cut off at an ellipsis."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def shown(piece: str, cells: int = WIDEST_PIECE) -> str:
    """A piece in a table: its spaces can be seen."""
    return clipped(piece.replace(" ", SPACE), cells)


def quoted(piece: str) -> str:
    """A piece in a sentence: in marks that hardly any piece has, and without spaces, so that it stays on one line."""
    return f"‹{shown(piece)}›"


def every(count: int, noun: str) -> str:
    """``all 9 heads``, ``the one head``."""
    return f"the one {noun}" if count == 1 else f"all {counted(count, noun)}"


def percent(share: float) -> str:
    """``41 %``, ``2.2 %``, ``0.04 %``; 100 % and 0 % are exact, what is nearly so is a bound."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    if share < 0.0001:
        return "<0.01 %"
    if share > 0.9995:
        return ">99.9 %"
    digits = 0 if 0.0995 <= share < 0.9945 else 1 if share >= 0.00995 else 2
    return f"{100 * share:.{digits}f} %"


def number(value: float) -> str:
    """About three digits, without an exponent."""
    size = abs(value)
    return f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"


def signed(value: float) -> str:
    """To two decimals, with a sign; zero has a plus."""
    return f"{round(value, 2) + 0.0:+.2f}"


def back(distance: int) -> str:
    """How far a position lies behind."""
    return "itself" if distance == 0 else f"{distance} back"


def paragraph(text: str, width: int) -> Text:
    """Plain sentences, wrapped."""
    return Text("\n".join(wrapped(text, min(width, WIDEST_TEXT))))


def wrapped(text: str, cells: int) -> list[str]:
    """Lines of at most so many cells; a ``WORD`` is cut only where it is longer than a line."""
    lines = [""]
    for word in WORD.findall(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= cells:
            lines[-1] = longer
        else:
            lines += chop_cells(word, cells)
    return lines if lines[0] else lines[1:]


def heading(title: str, width: int) -> Text:
    """The line above a page."""
    head = f"── {title} "
    return Text(head + "─" * max(0, min(width, WIDEST_TEXT) - cell_len(head)), style="bold cyan")


def bare_table(gap: int = 2) -> Table:
    """A table without lines and title. gap: cells between columns."""
    return Table(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)


def token_grid(tokens: Sequence[SeenToken], first: int, end: int, width: int) -> Iterator[Text]:
    """Tokens side by side, three lines a row: positions, pieces, ids; a blank line between rows.

    Those from position ``first`` to before ``end`` are set off.
    """
    row: list[tuple[SeenToken, str, int]] = []
    used = 0
    for token in tokens:
        piece = shown(token.piece)
        cells = max(cell_len(piece), len(str(token.id)), len(str(token.position)))
        if row and used + cells > width:
            yield _grid_row(row, first, end).append("\n")
            row, used = [], 0
        row.append((token, piece, cells))
        used += cells + 1
    if row:
        yield _grid_row(row, first, end)


def _grid_row(row: Sequence[tuple[SeenToken, str, int]], first: int, end: int) -> Text:
    lines = [Text(), Text(), Text()]
    for token, piece, cells in row:
        style = "magenta" if token.special else "bold" if first <= token.position < end else ""
        entries = ((str(token.position), "dim"), (piece, style), (str(token.id), "cyan"))
        for line, (entry, its_style) in zip(lines, entries, strict=True):
            line.append(set_cell_size(entry, cells), style=its_style)
            line.append(" ")
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
