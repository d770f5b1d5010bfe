"""``cutaway walk``: one generation in five steps, with every number that matters.

In: a model, a prompt, sampling parameters. Out: five pages and the bill, or one JSON object.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.ask import messages_of
from cutaway.cli.console import error_console, first_use
from cutaway.cli.missing_template import missing_template_told
from cutaway.cli.models import ModelName
from cutaway.cli.options import (
    TEMPERATURE,
    TOP_P,
    ChatTemplate,
    Context,
    FrequencyPenalty,
    KVDtype,
    MinP,
    PresencePenalty,
    Prompt,
    PromptFile,
    RepetitionPenalty,
    Seed,
    System,
    Threads,
    TopK,
    TopP,
)
from cutaway.cli.prompt import read_question
from cutaway.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cutaway.audit.walk.walk import TimesWanted, Walk, WalkSettings
    from cutaway.engine.llm import LLM

NARROW = 80  # columns where the output is no terminal
ALL_LAYERS = "all"
MOST_DIGITS = 9  # of a layer's number
MOST_SHOWN = 80  # characters of a refused text


def walk(
    model: ModelName,
    prompt: Prompt = None,
    file: PromptFile = None,
    raw: Annotated[
        bool, typer.Option("--raw/--chat", help="Complete the text as it is, or answer by the chat template (default).")
    ] = False,
    system: System = None,
    chat_template: ChatTemplate = None,
    temperature: Annotated[
        str, typer.Option(help="0 takes the most likely token; several, as in 0.1,0.9, are shown side by side.")
    ] = f"{TEMPERATURE:g}",
    top_k: TopK = 0,
    top_p: TopP = TOP_P,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    seed: Seed = None,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most; the first is shown in full.")] = 3,
    context: Context = None,
    layers: Annotated[
        str, typer.Option(help="Layers to show operation by operation: 0,29 or 3-5 or all. Default: none.")
    ] = "",
    times: Annotated[bool, typer.Option("--times/--no-times", help="Measure what the steps cost.")] = True,
    threads: Threads = None,
    kv_dtype: KVDtype = "f16",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; docs/walk.md names its keys.")
    ] = False,
) -> None:
    """Walk through one generation: tokenize, embed and place, layers, sample, append and repeat."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.walk.walk import WalkSettings
    from cutaway.sampling.params import fresh_seed

    settings = WalkSettings(
        temperatures=read_temperatures(temperature),
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=fresh_seed() if seed is None else seed,
        max_tokens=max_tokens,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
    )
    text = read_question(prompt, file, "walk", raw=raw, system=system, chat_template=chat_template)

    from cutaway.cli.tables import output_console, print_whole
    from cutaway.cli.walk_json import walk_dict
    from cutaway.engine.llm import LLM

    with first_use(error_console()) as (fetching, compiling), missing_template_told("add --raw"):
        with LLM(
            model,
            threads=threads,
            max_model_len=context,
            kv_dtype=kv_dtype,
            chat_template=chat_template,
            needs_chat=not raw,
            progress=fetching,
        ) as llm:
            in_full = read_layers(layers, llm.runner.config.num_layers)
            found = _walk(llm, text, settings, raw=raw, system=system, times=times)
        compiling.done()
    if as_json:
        typer.echo(json.dumps(walk_dict(found), ensure_ascii=False))
        return
    console = output_console(NARROW)
    print_whole(console, pages(found, console.width, in_full))


def _walk(llm: "LLM", text: str, settings: "WalkSettings", *, raw: bool, system: str | None, times: bool) -> "Walk":
    """Put the question, and look at the answer's computation; times: and repeat its steps to measure them."""
    from cutaway.audit.walk.tokens import find_ids
    from cutaway.audit.walk.walk import walk as walk_through

    ids = llm.tokenizer.encode(text) if raw else llm.tokenizer.encode_chat(messages_of(text, system))
    return walk_through(
        llm.runner,
        llm.tokenizer,
        ids,
        settings,
        name=llm.model.name if llm.model.entry else None,
        written=find_ids(ids, llm.tokenizer.encode(text, add_bos=False)),
        measure=_measure(llm) if times else None,
    )


def _measure(llm: "LLM") -> "TimesWanted":
    """What the walk's times are compared with: the weights' bytes, and the machine's limits, which are measured."""
    from cutaway.audit.limits import measure_limits
    from cutaway.audit.walk.walk import TimesWanted
    from cutaway.formats.open_model import open_model

    with open_model(llm.model.path) as source:
        weight_bytes = {name: tensor.nbytes for name, tensor in source.tensors.items()}
    return TimesWanted(weight_bytes, measure_limits(llm.runner.team))


def pages(found: "Walk", width: int, in_full: Sequence[int]) -> "Iterator[RenderableType]":
    """The whole walk for a terminal of this many columns. in_full: the layers to be shown operation by operation."""
    from cutaway.cli.walk_choice import choice_page
    from cutaway.cli.walk_end import cost_page, repeat_page
    from cutaway.cli.walk_forward import embedding_page, introduction, layers_page, tokens_page
    from cutaway.cli.walk_text import heading

    steps = (
        ("Tokenize", tokens_page(found, width)),
        ("Embed and place", embedding_page(found, width)),
        ("Layers", layers_page(found, width, in_full)),
        ("Sample", choice_page(found, width)),
        ("Append and repeat", repeat_page(found, width)),
    )
    yield introduction(found, width)
    yield ""
    for step, (title, page) in enumerate(steps, 1):
        yield heading(f"{step} of {len(steps)} · {title}", width)
        yield from page
        yield ""
    if found.times is not None:
        yield heading("What it cost", width)
        yield from cost_page(found, width)


def read_temperatures(text: str) -> tuple[float, ...]:
    """``0.7``, or ``0.1,0.9``."""
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError:
        raise InvalidRequestError(
            f"temperature is {text[:MOST_SHOWN]!r}; it must be a number from 0 to 100, or several with commas, as in "
            "0.1,0.9.",
            "temperature",
        ) from None


def read_layers(text: str, num_layers: int) -> list[int]:
    """``0,29``, ``3-5``, ``all``, or nothing."""
    if text == ALL_LAYERS:
        return list(range(num_layers))
    chosen: set[int] = set()
    for part in text.split(",") if text else []:
        first, dash, last = part.strip().partition("-")
        bounds = [
            int(each) if each.isdecimal() and len(each) <= MOST_DIGITS else -1
            for each in (first, last if dash else first)
        ]
        if not 0 <= bounds[0] <= bounds[1] < num_layers:
            raise InvalidRequestError(
                f"layers has {part.strip()[:MOST_SHOWN]!r}; the model has layers 0 to {num_layers - 1}. Name them as "
                f"in 0,3-5, or say {ALL_LAYERS}.",
                "layers",
            )
        chosen |= set(range(bounds[0], bounds[1] + 1))
    return sorted(chosen)
