"""Pages 1 to 3 of a walk: the tokens, their embeddings and places, the layers.

In: a ``Walk``, the terminal's width. Out: what rich prints, piece by piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from cutaway.audit.lens import LensRow
from cutaway.audit.walk.attention import Look, Looks, LooksOfHead
from cutaway.audit.walk.forward import QUANTIZED, SeenEmbedding, SeenForward, SeenLayer, SeenOperation
from cutaway.audit.walk.tokens import SeenToken
from cutaway.audit.walk.vectors import Spread
from cutaway.audit.walk.walk import Walk
from cutaway.cli.walk_text import (
    GRID_HEAD,
    GRID_TAIL,
    SPACE,
    back,
    bare_table,
    every,
    listed,
    number,
    paragraph,
    percent,
    quoted,
    shown,
    signed,
    token_grid,
)
from cutaway.errors import counted

OWN_EMBEDDINGS: Final = 5  # tokens of the user's own text
LAST_EMBEDDINGS: Final = 3
WIDE: Final = 120  # columns from which tables have more to say
MOST_CUT_CHARACTERS: Final = 12
SINK: Final = 0.2  # share of the first position from which it is worth a word

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attention_norm": "bring to one size",
        "attention_input": "round, in blocks",
        "qkv": "query, key, value",
        "head_norm": "each head to one size",
        "rope": "turn q, k in place",
        "kv_write": "k, v into the cache",
        "attention": "mix earlier values",
        "attention_output_input": "round, in blocks",
        "attention_output": "back to width D",
        "attention_post_norm": "bring to one size",
        "attention_residual": "add to the stream",
        "ffn_norm": "bring to one size",
        "ffn_input": "round, in blocks",
        "gate_up": "widen",
        "activate": "a(gate) · up or a(up)",
        "down_input": "round, in blocks",
        "down": "back to width D",
        "ffn_post_norm": "bring to one size",
        "ffn_residual": "add to the stream",
    }
)
"""What each operation of a layer does."""


def introduction(walk: Walk, width: int) -> RenderableType:
    """What is walked through, and with which settings."""
    settings = walk.settings
    temperatures = listed([f"{each:g}" for each in settings.temperatures])
    penalties = {
        "repetition penalty": (settings.repetition_penalty, 1.0),
        "presence penalty": (settings.presence_penalty, 0.0),
        "frequency penalty": (settings.frequency_penalty, 0.0),
    }
    in_effect = "".join(f"{name} {value:g}, " for name, (value, off) in penalties.items() if value != off)
    name = f"{walk.name} ({walk.model})" if walk.name else walk.model
    return paragraph(
        f"{name}, one generation in five steps. Temperature {temperatures}, top-k {settings.top_k}, top-p "
        f"{settings.top_p:g}, min-p {settings.min_p:g}, {in_effect}seed {settings.seed}: `cutaway run` with the same "
        "options and seed gives the same tokens.",
        width,
    )


def tokens_page(walk: Walk, width: int) -> Iterator[RenderableType]:
    """Step 1."""
    count = len(walk.prompt)
    first, end = walk.written or (0, 0)
    where = f"position {first}" if end - first == 1 else f"positions {first} to {end - 1}"
    whose = (
        f" Your text is at {where}; the chat template wrote the others, to tell the model who speaks."
        if walk.written and end - first < count
        else ""
    )
    yield paragraph(
        f"A model reads numbers. The tokenizer cuts the text into {counted(count, 'piece')} of its vocabulary of "
        f"{walk.vocab_size:,}, and gives the number of each, its id. Shown are position, piece ({SPACE} is a space) "
        f"and id.{whose}",
        width,
    )
    yield ""
    if count <= GRID_HEAD + GRID_TAIL:
        yield from token_grid(walk.prompt, first, end, width)
    else:
        yield from token_grid(walk.prompt[:GRID_HEAD], first, end, width)
        yield ""
        yield paragraph(f"… {counted(count - GRID_HEAD - GRID_TAIL, 'more token')} …", width)
        yield ""
        yield from token_grid(walk.prompt[-GRID_TAIL:], first, end, width)
    if walk.cut:
        yield ""
        yield paragraph(
            "Some characters are cut into tokens of their bytes (<0xNN>): "
            + ", ".join(f"{quoted(each.character)} {each.first}–{each.last}" for each in walk.cut[:MOST_CUT_CHARACTERS])
            + (f" and {len(walk.cut) - MOST_CUT_CHARACTERS} more" if len(walk.cut) > MOST_CUT_CHARACTERS else "")
            + ".",
            width,
        )


def embedding_page(walk: Walk, width: int) -> Iterator[RenderableType]:
    """Step 2."""
    forward, sizes = walk.forward, walk.dimensions
    T, D = forward.tokens, sizes["D"]
    rows = "This row is" if T == 1 else f"The {T:,} rows are"
    yield paragraph(
        f"Each id picks its row of the embedding matrix [V, D] = [{sizes['V']:,}, {D}]: {D} numbers that the model "
        f"learned for this token. {rows} the residual stream x, [T, D] = [{T}, {D}]; every layer will read it and add "
        "to it. The norm of a row is its length as a vector, the root of the sum of its squares: it says how large "
        "the numbers are, whatever they mean.",
        width,
    )
    if len(walk.prompt) > T:
        yield paragraph(
            f"A long prompt goes through the model in chunks. This is the last, from position {forward.context - T} "
            "on; keys and values of the positions before it are in the KV cache.",
            width,
        )
    yield ""
    table = bare_table()
    table.add_column("position", justify="right")
    table.add_column("token", no_wrap=True)
    table.add_column("id", justify="right")
    table.add_column("first numbers of its row", no_wrap=True)
    table.add_column("norm", justify="right")
    for each in _chosen_embeddings(walk):
        numbers = "  ".join(f"{value:+.3f}" for value in each.first_numbers)
        table.add_row(str(each.position), shown(each.piece), str(each.id), f"{numbers}  …", number(each.row.norm))
    yield table
    yield ""
    yield from _rotary_place(walk, width) if forward.pairs else _row_place(walk, width)


def _row_place(walk: Walk, width: int) -> Iterator[RenderableType]:
    """The place of a model without rotary positions."""
    yield paragraph(
        "Place: each position has a row of its own, which was learned, too. It has been added to the rows above, so "
        "that the same token has another row at another place.",
        width,
    )


def _rotary_place(walk: Walk, width: int) -> Iterator[RenderableType]:
    """The place of a model with rotary positions."""
    forward, sizes, T, last = walk.forward, walk.dimensions, walk.forward.tokens, walk.prompt[-1]
    same = [token.position for token in walk.prompt[:-1] if token.id == last.id]
    if same:
        yield paragraph(
            f"{quoted(last.piece)} stands at {listed([*map(str, same[-4:]), str(last.position)])} and has the same row "
            "each time: a row doesn't know its place.",
            width,
        )
    slowest, angles = forward.pairs[-1], sizes["G"] * sizes["R"]
    tables = "" if sizes["G"] == 1 else ", by each of the tables that different layers use; below, the first"
    yield paragraph(
        f"Place: RoPE (Su et al. 2021) doesn't change these rows. In each layer it will turn every query and key, pair "
        f"of numbers by pair, by an angle that grows with the position: pair {forward.pairs[0].pair} by "
        f"{forward.pairs[0].radians:.3g} radians a position, pair {slowest.pair} by {slowest.radians:.2g}. So a query "
        "and a key, multiplied, depend on how far apart their tokens are. The angles are [T, G·R] = "
        f"[{T}, {angles}], a cosine and a sine for each pair{tables}. At position {last.position}:",
        width,
    )
    yield ""
    table = bare_table()
    for name in ("pair of a head", "a full turn every", "cosine", "sine"):
        table.add_column(name, justify="right")
    pairs = forward.pairs
    for pair in dict.fromkeys((pairs[0], pairs[len(pairs) // 4], pairs[len(pairs) // 2], pairs[-1])):
        table.add_row(
            str(pair.pair), f"{number(pair.positions_per_turn)} positions", f"{pair.cosine:+.3f}", f"{pair.sine:+.3f}"
        )
    yield table


def _chosen_embeddings(walk: Walk) -> list[SeenEmbedding]:
    """The end of the user's own text, and the last tokens of all."""
    by_position = {each.position: each for each in walk.forward.embeddings}
    _, end = walk.written or (0, 0)
    last = walk.prompt[-1].position
    wanted = [*range(end - OWN_EMBEDDINGS, end), *range(last + 1 - LAST_EMBEDDINGS, last + 1)]
    return [by_position[position] for position in sorted(set(wanted)) if position in by_position]


def layers_page(walk: Walk, width: int, in_full: Sequence[int]) -> Iterator[RenderableType]:
    """Step 3. in_full: the layers to be shown operation by operation."""
    forward, sizes = walk.forward, walk.dimensions
    yield paragraph(
        f"{counted(len(forward.layers), 'layer')}, one after the other, each with weights of its own and the same "
        "operations. A layer has two blocks. Attention fetches from earlier tokens: a query asks, keys answer, and the "
        "values of those that fit are mixed. The feed-forward network then works on each token alone. Both add their "
        "result to the residual stream. Symbols are those of `cutaway shapes`.",
        width,
    )
    yield ""
    yield _operations_table(forward.layers[0].operations)
    yield ""
    yield paragraph(
        f"Before each matrix product its input is rounded to int8 (the rows …{QUANTIZED}), in blocks of 32 numbers "
        f"with a scale each. Attention has {counted(sizes['H'], 'query head')} and "
        f"{counted(sizes['Hkv'], 'key/value head')} of "
        f"{sizes['Dh']} numbers.",
        width,
    )
    yield ""
    yield paragraph(
        f"What happens to the last token, {quoted(walk.prompt[-1].piece)} at position {walk.prompt[-1].position}, from "
        "its embedding (row embed) on. Stream: the norm of its row after the layer; then the norms of what attention "
        "and the feed-forward network (ffn) added (vectors may point against each other, so norms don't add up). Its "
        "attention, averaged over heads: to the first token, to itself, and to others most (position:token). Last, "
        "what the model would say if it ended here: its final norm and head, applied early (the logit lens). Only the "
        "last layer's word counts.",
        width,
    )
    yield ""
    yield _layers_table(forward, width)
    yield ""
    yield paragraph(_range_sentence(forward), width)
    for line in _looks_sentences(walk):
        yield paragraph(line, width)
    for layer in in_full:
        yield ""
        yield from _layer_in_full(forward.layers[layer], forward.context, width)


def _operations_table(operations: Sequence[SeenOperation]) -> Table:
    table = bare_table(gap=1)
    for name in ("operation", "writes", "here", "as", "what it does"):
        table.add_column(name, no_wrap=True)
    for each in operations:
        # Escaped, or "[T, D]" would be read as a style.
        symbolic, actual = (f"\\[{', '.join(map(str, entries))}]" for entries in (each.symbolic, each.shape))
        table.add_row(each.name, symbolic, actual, each.dtype.replace("float", "f"), MEANINGS[each.name])
    return table


def _layers_table(forward: SeenForward, width: int) -> Table:
    """A row for each layer: what it does to the last token's stream, where it looks, what it would say."""
    wide = width >= WIDE
    table = bare_table(gap=1)
    for name in ("layer", "stream", *(("least", "greatest") if wide else ()), "attention\nadds", "ffn\nadds"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("first\n%", "itself\n%"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("looks at", no_wrap=True)
    table.add_column("would say", no_wrap=True)

    def stream(row: Spread) -> list[str]:
        return [number(row.norm), *([signed(row.least), signed(row.greatest)] if wide else [])]

    def guess(lens: LensRow) -> str:
        return f"{shown(lens.guesses[0].piece, 8)} {percent(lens.guesses[0].probability)}"

    # The embedding has no attention.
    table.add_row("embed", *stream(forward.layers[0].before), *([""] * 5), guess(forward.embedding_lens))
    for layer in forward.layers:
        average = layer.attention.average
        table.add_row(
            str(layer.layer),
            *stream(layer.after),
            number(layer.attention_adds.norm),
            number(layer.ffn_adds.norm),
            _first(average, forward.context).removesuffix(" %"),
            percent(average.itself).removesuffix(" %"),
            ", ".join(
                f"{each.position}:{_look(each, 7)}"
                for each in _others(average.strongest, forward.context)[: 2 if wide else 1]
            ),
            guess(layer.lens),
        )
    return table


def _first(looks: Looks | LooksOfHead, context: int) -> str:
    """The share of the first token, where it is another."""
    return percent(looks.first) if context > 1 else "–"


def _range_sentence(forward: SeenForward) -> str:
    """The stream's range, early and late."""
    middle = forward.layers[len(forward.layers) // 2]
    rows = {
        "in the embedding": forward.layers[0].before,
        f"after layer {middle.layer}": middle.after,
        "after the last": forward.layers[-1].after,
    }
    ranges = [f"{signed(row.least)} to {signed(row.greatest)} {where}" for where, row in rows.items()]
    return f"The row's numbers range from {listed(ranges)}; --layers all shows every operation's range."


def _others(strongest: Sequence[Look], context: int) -> list[Look]:
    """Without the first position and the token's own."""
    return [each for each in strongest if 0 < each.position < context - 1]


def _look(look: Look, cells: int) -> str:
    return f"{shown(look.piece, cells)} {percent(look.probability)}"


def looks_sentence(looks: Looks, tokens: Sequence[SeenToken], position: int) -> str:
    """Where the token at ``position`` > 0 looks; tokens: up to it at least."""
    others = [
        f"{percent(each.probability)} at {quoted(each.piece)} ({back(each.distance)})"
        for each in _others(looks.strongest, position + 1)[:4]
    ]
    return (
        f"Token {position + 1} of {position + 1}, {quoted(tokens[position].piece)}, looks: {percent(looks.first)} at "
        f"the first token, {percent(looks.itself)} at itself" + (f", {listed(others)}." if others else ".")
    )


def _looks_sentences(walk: Walk) -> Iterator[str]:
    """Where the last token looks, on average and most of all."""
    forward, last = walk.forward, walk.prompt[-1].position
    heads, layers = walk.dimensions["H"], len(forward.layers)
    if last == 0:
        yield f"The only token, {quoted(walk.prompt[0].piece)}, has nothing to look at but itself."
    else:
        where = looks_sentence(forward.attention, walk.prompt, last)
        yield f"On average over {every(heads, 'head')} of {every(layers, 'layer')}: {where}"
    if last > 0 and forward.attention.first > SINK:
        yield ("A head that has nothing to look for rests on the first token: an attention sink (Xiao et al. 2023).")
    single = [
        (look.probability, layer.layer, head.head, look)
        for layer in forward.layers
        for head in layer.attention.heads
        for look in _others(head.strongest, forward.context)
    ]
    if single:
        probability, layer, head, look = max(single, key=lambda each: each[0])
        yield (
            f"The keenest single look: head {head} of layer {layer} spends {percent(probability)} on "
            f"{quoted(look.piece)} ({back(look.distance)})."
        )
    yield (
        "The engine never stores these percentages; they are derived from its queries and keys. The proof: its own "
        "attention output follows from the same scores in all layers, to the bit."
    )


def _layer_in_full(layer: SeenLayer, context: int, width: int) -> Iterator[RenderableType]:
    """One layer: the shape and the last row of each operation, where each head looks, what the model would say here."""
    yield paragraph(f"Layer {layer.layer} in full: each operation's row of the last token, and its heads.", width)
    yield ""
    table = bare_table()
    table.add_column("operation", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("type", no_wrap=True)
    for name in ("norm", "least", "greatest"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in layer.operations:
        table.add_row(
            each.name,
            f"\\[{', '.join(map(str, each.shape))}]",
            each.dtype,
            number(each.last.norm),
            signed(each.last.least),
            signed(each.last.greatest),
        )
    yield table
    yield ""
    table = bare_table(gap=1)
    for name in ("head", "KV head", "first", "itself"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("and of the others most", no_wrap=True)
    for head in layer.attention.heads:
        others = _others(head.strongest, context)[: 3 if width >= WIDE else 2]
        table.add_row(
            str(head.head),
            str(head.kv_head),
            _first(head, context),
            percent(head.itself),
            ", ".join(f"{_look(each, 10)} ({back(each.distance)})" for each in others),
        )
    yield table
    yield ""
    guesses = [f"{quoted(each.piece)} {percent(each.probability)}" for each in layer.lens.guesses]
    yield paragraph(f"If the model ended here it would say {listed(guesses)}.", width)
