"""Page 4 of a walk: how the first new token is chosen.

In: a ``Walk``, the terminal's width. Out: what rich prints, piece by piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from cutaway.audit.walk.choice import LIKELIEST, MODEL, Candidate, Choice
from cutaway.audit.walk.walk import Walk
from cutaway.cli.walk_text import bare_table, listed, paragraph, percent, quoted, shown, signed
from cutaway.errors import counted

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "logit_bias": "logit bias",
        "masks": "masks",
        "penalties": "penalties",
        "temperature": "temperature",
        "top_k": "top-k",
        "top_p": "top-p",
        "min_p": "min-p",
    }
)


def choice_page(walk: Walk, width: int) -> Iterator[RenderableType]:
    """Step 4."""
    choices = walk.new_tokens[0].choices
    logits = next(each for each in reversed(walk.forward.outside) if each.name.startswith("logits"))
    tied = ", which is the embedding matrix itself," if walk.tied_head else ""
    yield paragraph(
        f"The last token's row, normed, times the head [V, D]{tied} gives a logit for each of the {walk.vocab_size:,} "
        f"tokens: {signed(logits.last.least)} to {signed(logits.last.greatest)} here. e^logit, divided by the sum "
        f"over all, is a token's probability. The likeliest is {_likeliest(choices[0])}.",
        width,
    )
    yield ""
    for choice in choices:
        if len(choices) > 1:
            yield paragraph(f"Temperature {choice.temperature:g}", width)
        for line in _step_sentences(walk, choice):
            yield paragraph("· " + line, width)
    yield ""
    yield _one(choices[0]) if len(choices) == 1 else _side_by_side(choices)
    yield ""
    for line in _end_sentences(walk, choices):
        yield paragraph(line, width)


def _likeliest(choice: Choice) -> str:
    best = choice.candidates[0]
    return f"{quoted(best.piece)} with {percent(best.probabilities[MODEL])}"


def _step_sentences(walk: Walk, choice: Choice) -> Iterator[str]:
    """A line for each step that did something, one for all that did nothing."""
    idle: list[str] = []
    if choice.greedy:
        yield "Temperature 0 is greedy: the largest logit wins, the lowest id among equals. Nothing is drawn."
    values = {
        "top_k": f"{walk.settings.top_k}",
        "top_p": f"{walk.settings.top_p:g}",
        "min_p": f"{walk.settings.min_p:g}",
    }
    before = walk.vocab_size
    for step in choice.steps:
        if not step.changed:
            idle.append(NAMES.get(step.name, step.name))
            continue
        if step.name == "temperature":
            yield _temperature_sentence(choice)
        elif step.name in values:
            yield (
                f"{NAMES[step.name].capitalize()} {values[step.name]} kept {step.kept:,} of {before:,} tokens, which "
                f"{'together ' if step.kept > 1 else ''}had {percent(step.mass)}; the others can't be drawn now."
            )
        else:
            yield (
                f"{NAMES.get(step.name, step.name).capitalize()} changed the logits of {counted(step.touched, 'token')}"
                + (_in_the_text(step.touched) if step.name == "penalties" else ".")
            )
        before = step.kept
    if idle:
        yield f"{listed(idle).capitalize()} did nothing here."


def _in_the_text(tokens: int) -> str:
    return f" that {'is' if tokens == 1 else 'are'} in the text already."


def _temperature_sentence(choice: Choice) -> str:
    best = choice.candidates[0]
    effect = "likely tokens become likelier" if choice.temperature < 1 else "unlikely tokens become likelier"
    return (
        f"Temperature {choice.temperature:g} divides all logits, so {effect}: {quoted(best.piece)} goes from "
        f"{percent(best.probabilities[MODEL])} to {percent(best.probabilities['temperature'])}."
    )


def _one(choice: Choice) -> Table:
    """Candidates with their probability after each step that did something."""
    columns = [MODEL, *(step.name for step in choice.steps if step.changed)]
    table = bare_table(gap=1)
    table.add_column("", no_wrap=True)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("token", no_wrap=True)
    table.add_column("logit", justify="right", no_wrap=True)
    for name in columns:
        table.add_column(NAMES.get(name, name), justify="right", no_wrap=True)
    if not choice.greedy:
        table.add_column("noise", justify="right", no_wrap=True)
        table.add_column("sum", justify="right", no_wrap=True)
    for each in choice.candidates:
        cells = [_mark(each, choice), str(each.rank), shown(each.piece), f"{each.logit:.2f}"]
        cells += [_probability(each.probabilities[name]) for name in columns]
        if each.noise is not None:
            cells += [signed(each.noise), _total(each)]
        table.add_row(*cells, style=_style(each, choice))
    return table


def _side_by_side(choices: Sequence[Choice]) -> Table:
    """The same candidates under each temperature: the last probability, and the sum."""
    table = bare_table(gap=1)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("token", no_wrap=True)
    table.add_column("model", justify="right", no_wrap=True)
    if not all(choice.greedy for choice in choices):
        table.add_column("noise", justify="right", no_wrap=True)
    for choice in choices:
        table.add_column(f"T {choice.temperature:g}", justify="right", no_wrap=True)
        if not choice.greedy:
            table.add_column("sum", justify="right", no_wrap=True)
    for same_token in zip(*(choice.candidates for choice in choices), strict=True):
        one = same_token[0]
        cells = [str(one.rank), shown(one.piece, 12), _probability(one.probabilities[MODEL])]
        noises = [each.noise for each in same_token if each.noise is not None]
        cells += [signed(noises[0])] if noises else []
        for each, choice in zip(same_token, choices, strict=True):
            cells.append(_mark(each, choice) + _probability(_last(each, choice)))
            if not choice.greedy:
                cells.append(_total(each))
        won = any(choice.winner.id == one.id for choice in choices)
        table.add_row(*cells, style="bold green" if won else "")
    return table


def _last(candidate: Candidate, choice: Choice) -> float:
    """With which it is drawn; nothing but the winner can be where nothing is drawn."""
    if choice.greedy:
        return float(candidate.id == choice.winner.id)
    return list(candidate.probabilities.values())[-1]


def _probability(share: float) -> str:
    return "–" if share == 0 else percent(share)


def _total(candidate: Candidate) -> str:
    return "–" if candidate.total is None else signed(candidate.total)


def _mark(candidate: Candidate, choice: Choice) -> str:
    return "►" if candidate.id == choice.winner.id else ""


def _style(candidate: Candidate, choice: Choice) -> str:
    return "bold green" if candidate.id == choice.winner.id else "dim" if candidate.total is None else ""


def _end_sentences(walk: Walk, choices: Sequence[Choice]) -> Iterator[str]:
    """How the noise decided, and who won."""
    drawn = [choice for choice in choices if not choice.greedy]
    if drawn:
        same = ": the same for every temperature" if len(drawn) > 1 else ""
        yield (
            f"The noise is a function of seed {walk.settings.seed}, position {choices[0].position} and the token's id, "
            f"and of nothing else (Gumbel noise from Philox){same}. The largest sum of log-probability and noise wins, "
            "which happens to each token exactly as often as its probability says."
        )
        if len(choices[0].candidates) > LIKELIEST:
            yield (
                f"The table has the {LIKELIEST} likeliest tokens, and those with the largest sums: an unlikely token "
                "is among these because its noise is large."
            )
        if any(each.total is None for choice in drawn for each in choice.candidates):
            yield "A token with – can't be drawn; its noise is what it would have had."
    for choice in choices:
        yield _winner_sentence(choice, named=len(choices) > 1)
    if len(choices) > 1:
        yield f"The walk goes on with temperature {choices[0].temperature:g}."


def _winner_sentence(choice: Choice, named: bool) -> str:
    winner, second = choice.winner, choice.runner_up
    at = f"At temperature {choice.temperature:g} the" if named else "The"
    if choice.greedy:
        penalised = any(step.changed for step in choice.steps)
        after = " after the penalties; before them it is" if penalised else ","
        return f"{at} winner: {quoted(winner.piece)}, with the largest logit{after} {winner.logit:.2f}."
    sentence = f"{at} winner: {quoted(winner.piece)} with {signed(winner.total or 0.0)}"
    if second is None:
        return sentence + ", the only token left."
    return f"{sentence}; {quoted(second.piece)} comes second with {signed(second.total or 0.0)}."
