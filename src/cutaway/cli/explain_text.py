"""An explanation in the terminal: the answer token by token, one token in full, who computed it when.

In: an ``Explanation``. Out: what rich prints, piece by piece.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cutaway.audit.explain.explanation import ExplainedToken, Explanation
from cutaway.audit.walk.choice import MODEL
from cutaway.audit.walk.tokens import SeenToken
from cutaway.cli.tables import plain_table, shared_ledger_table
from cutaway.cli.walk_text import percent, quoted, shown
from cutaway.errors import InvalidRequestError

LOOKS: Final = 3
PIECE: Final = 14  # characters of a token that are shown
LENS_BAR: Final = 24
BARS: Final = "▁▂▃▄▅▆▇█"
MOST_BARS: Final = 60


def explanation_pages(found: Explanation, places: Sequence[int] = ()) -> Iterator[RenderableType]:
    """The whole answer; places: positions of the tokens that are shown in full, where the answer has them."""
    by_position = {each.position: each for each in found.tokens}
    yield answer_table(found)
    for each in (by_position[place] for place in places if place in by_position):
        yield ""
        yield funnel_table(each)
        yield ""
        yield candidates_table(each)
        yield ""
        yield lens_table(each)
    if found.steps:
        yield ""
        yield from timeline(found)
    if found.ledger is not None:
        yield ""
        yield shared_ledger_table(found.ledger, "What it took")


def check_places(found: Explanation, places: Sequence[int]) -> None:
    """Raises InvalidRequestError for a position that the answer doesn't have."""
    there = [each.position for each in found.tokens]
    for place in places:
        if place not in there:
            had = f"has the positions {there[0]} to {there[-1]}" if there else "has no token"
            raise InvalidRequestError(f"--at is {place}; the answer {had}. Name one of them.", "at")


def leads_from(token: ExplainedToken) -> int | None:
    """The layer from which on the chosen token leads, -1 for the embedding; None if it doesn't lead in the end."""
    layer = None
    for row in reversed(token.lens):
        if row.rank != 1:
            break
        layer = row.layer
    return layer


def answer_table(found: Explanation) -> Table:
    """A line for each token."""
    table = plain_table("The answer, token by token")
    for column, justify in (("at", "right"), ("token", "left"), ("model", "right"), ("rank", "right")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("left to\ndraw", justify="right", no_wrap=True)
    table.add_column("leads from\nlayer", justify="right", no_wrap=True)
    table.add_column("looked at most", no_wrap=True)
    sequence = found.sequence
    for token in found.tokens:
        steps, layer = token.choice.steps, leads_from(token)
        table.add_row(
            str(token.position),
            shown(token.piece, PIECE),
            percent(token.choice.winner.probabilities[MODEL]),
            str(token.choice.winner.rank),
            "1" if token.choice.greedy else f"{steps[-1].kept if steps else found.vocab_size:,}",
            "–" if layer is None else "emb." if layer < 0 else str(layer),
            _looks(token, sequence),
        )
    return table


def _looks(token: ExplainedToken, sequence: Sequence[SeenToken]) -> str:
    return "  ".join(f"{shown(sequence[place].piece, PIECE)} {percent(p)}" for place, p in token.looked.average[:LOOKS])


def funnel_table(token: ExplainedToken) -> Table:
    """What each step of the sampler left."""
    table = plain_table(f"How {quoted(token.piece)} at {token.position} was chosen")
    table.add_column("step", no_wrap=True)
    for column in ("changed", "left", "of the probability"):
        table.add_column(column, justify="right", no_wrap=True)
    for step in token.choice.steps:
        table.add_row(
            step.name,
            f"{step.touched:,}" if step.touched else "",
            f"{step.kept:,}",
            percent(step.mass),
            style=None if step.changed else "dim",
        )
    table.add_row("the largest" if token.choice.greedy else "draw", "", "1", "", style="bold")
    return table


def candidates_table(token: ExplainedToken) -> Table:
    """The likeliest candidates through the steps that changed something."""
    names = [MODEL, *(step.name for step in token.choice.steps if step.changed)]
    table = plain_table("Candidates")
    table.add_column("token", no_wrap=True)
    for column in ("rank", *names, *(() if token.choice.greedy else ("noise", "sum"))):
        table.add_column(column, justify="right", no_wrap=True)
    for each in token.choice.candidates:
        drawn = () if each.noise is None else (f"{each.noise:.2f}", "" if each.total is None else f"{each.total:.2f}")
        table.add_row(
            shown(each.piece, PIECE),
            f"{each.rank:,}",
            *(percent(each.probabilities[name]) if each.probabilities[name] > 0 else "dropped" for name in names),
            *drawn,
            style="bold" if each.id == token.id else None,
        )
    return table


def lens_table(token: ExplainedToken) -> Table:
    """What the model would have said after each layer, the last first."""
    table = plain_table(f"If the model had ended earlier, in place of {quoted(token.piece)}")
    for column in ("layer", "its rank", "chosen"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("likeliest", no_wrap=True)
    for row in reversed(token.lens):
        best = (f"{shown(each.piece, PIECE)} {percent(each.probability)}" for each in row.guesses)
        table.add_row(
            "emb." if row.layer < 0 else str(row.layer),
            f"{row.rank:,}",
            percent(row.chosen),
            "█" * round(LENS_BAR * row.chosen),
            "  ".join(best),
        )
    return table


def timeline(found: Explanation) -> Iterator[RenderableType]:
    """Steps, pages, decisions."""
    steps = found.steps
    own = [sum(piece.blocks for piece in each.pieces if piece.request_id == found.request_id) for each in steps]
    seconds = [each.seconds for each in steps]
    yield Text("Who computed it when", style="bold")
    yield Text(
        f"{len(steps)} steps in {steps[-1].started + steps[-1].seconds - steps[0].started:.2f} s; a step took "
        f"{1e3 * min(seconds):.2f} to {1e3 * max(seconds):.2f} ms."
    )
    yield Text(f"time   {sparkline(seconds)}", no_wrap=True)
    yield Text(f"pages  {sparkline(own)}  {own[0]} to {max(own)} of {steps[0].blocks_total}", no_wrap=True)
    table = plain_table("Decisions")
    table.add_column("step", justify="right", no_wrap=True)
    for column in ("who", "was", "why"):
        table.add_column(column)
    for each in found.decisions:
        mine = each.name.partition("[")[0] == found.request_id
        table.add_row(str(each.step), "this answer" if mine else each.name, each.action, each.reason)
    yield table


def sparkline(values: Sequence[float]) -> str:
    """The values as bars; of more than ``MOST_BARS``, each bar is the greatest of several."""
    size = max(1, -(-len(values) // MOST_BARS))
    groups = [max(values[first : first + size]) for first in range(0, len(values), size)]
    greatest = max(groups, default=0.0) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int(len(BARS) * value / greatest))] for value in groups)
