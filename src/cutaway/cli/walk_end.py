"""Page 5 of a walk, and what it cost: the tokens that follow, the text, operations, bytes and times.

In: a ``Walk``, the terminal's width. Out: what rich prints, piece by piece.
"""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from cutaway.audit.ledger import Ledger
from cutaway.audit.walk.choice import MODEL
from cutaway.audit.walk.tokens import SeenToken
from cutaway.audit.walk.walk import NewToken, Walk
from cutaway.cli.console import quantity
from cutaway.cli.tables import narrow_ledger_table, unrest
from cutaway.cli.walk_forward import looks_sentence
from cutaway.cli.walk_text import bare_table, paragraph, percent, quoted, shown
from cutaway.errors import counted


def repeat_page(walk: Walk, width: int) -> Iterator[RenderableType]:
    """Step 5."""
    first = walk.new_tokens[0]
    yield paragraph(
        f"The winner {quoted(first.piece)} is appended at position {first.position}, and the model reads on. Only the "
        "new token goes through the layers: keys and values of the earlier ones are in the KV cache, "
        f"{quantity(walk.kv_bytes_per_token, 'B')} a token. Then the next is chosen, and so on, until the model says "
        "an end-of-answer token, or a limit is reached.",
        width,
    )
    yield ""
    yield _new_tokens_table(walk)
    yield ""
    for before, token in zip(walk.new_tokens, walk.new_tokens[1:], strict=False):
        yield paragraph(
            f"{looks_sentence(token.looks, all_tokens(walk), before.position)} Then it says {quoted(token.piece)}.",
            width,
        )
    if len(walk.new_tokens) > 1:
        yield ""
    ending = {
        "stop": f"{quoted(walk.new_tokens[-1].piece)} ends the answer.",
        "length": f"It stops here because of the limit of {counted(len(walk.new_tokens), 'new token')}.",
    }[walk.finish_reason]
    yield paragraph(f"The text so far: {walk.text!r}. {ending}" if walk.text else ending, width)


def all_tokens(walk: Walk) -> list[SeenToken]:
    """Prompt and answer."""
    answer = (SeenToken(each.position, each.id, each.piece, False) for each in walk.new_tokens)
    return [*walk.prompt, *answer]


def _new_tokens_table(walk: Walk) -> Table:
    """A line for each new token. With several temperatures: what the others would have said."""
    others = walk.settings.temperatures[1:]
    table = bare_table()
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("new token", no_wrap=True)
    table.add_column("id", justify="right", no_wrap=True)
    table.add_column("model", justify="right", no_wrap=True)
    table.add_column("rank", justify="right", no_wrap=True)
    for each in others:
        table.add_column(f"at T {each:g}", no_wrap=True)
    if not others:
        table.add_column("likeliest", no_wrap=True)
    for token in walk.new_tokens:
        winner = token.choices[0].winner
        table.add_row(
            str(token.position),
            shown(token.piece, 12),
            str(token.id),
            percent(winner.probabilities[MODEL]),
            str(winner.rank),
            *(shown(choice.winner.piece, 12) for choice in token.choices[1:]),
            *([] if others else [_likeliest(token)]),
        )
    return table


def _likeliest(token: NewToken) -> str:
    best = token.choices[0].candidates[0]
    return f"{shown(best.piece, 12)} {percent(best.probabilities[MODEL])}"


def cost_page(walk: Walk, width: int) -> Iterator[RenderableType]:
    """What the passes through the layers cost."""
    times = walk.times
    if times is None:
        return
    limits = times.limits
    amx = "" if limits.amx is None else f"{quantity(limits.amx.best, 'op/s')} on int8 with AMX, "
    yield paragraph(
        f"The passes, measured again and again: {counted(walk.threads, 'thread')}, median of the repetitions. This "
        f"machine's limits are measured too: {quantity(limits.stream.best, 'B/s')} "
        f"from memory, {quantity(limits.int8.best, 'op/s')} on int8, {amx}{quantity(limits.float32.best, 'op/s')} on "
        "float32. Limit names the one that binds an operation; what lies in a cache already can be faster than memory.",
        width,
    )
    yield ""
    yield narrow_ledger_table(times.prefill, _title(times.prefill, len(walk.prompt)))
    yield paragraph(_summary(times.prefill), width)
    if times.decode is not None:
        yield ""
        yield narrow_ledger_table(times.decode, _title(times.decode, len(walk.prompt)))
        yield paragraph(
            f"All weights are read for one token: {quantity(times.decode.streamed_bytes, 'B')} with the KV cache. "
            + _summary(times.decode),
            width,
        )


def _title(ledger: Ledger, prompt: int) -> str:
    if ledger.context > prompt:
        return f"One new token that attends {ledger.context} positions"
    if ledger.tokens < prompt:
        return f"The prompt's last chunk: {ledger.tokens} tokens at once"
    return "The prompt: 1 token" if prompt == 1 else f"The prompt: {prompt} tokens at once"


def _summary(ledger: Ledger) -> str:
    sentence = (
        f"{ledger.closed_median * 1e3:,.2f} ms without the clock, {ledger.tokens_per_second[1]:,.0f} tokens a second; "
        f"{100 * ledger.tokens_per_second[1] / ledger.roofline:.0f} % of what the limits allow."
    )
    return " ".join([sentence, *unrest([ledger])])
