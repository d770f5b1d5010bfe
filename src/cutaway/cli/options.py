"""The options that several commands share, each defined once, and how parameters are shown.

In: nothing, or sampling parameters. Out: annotated types and defaults for the commands' signatures; the parameters in
effect.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

TEMPERATURE: Final = 0.7
TOP_P: Final = 0.9
MAX_TOKENS: Final = 1024


def _advised(meaning: str, otherwise: object) -> Any:
    """An option whose default is the model's."""
    return typer.Option(help=f"{meaning} Default: what the model's authors advise, else {otherwise}.")


Prompt = Annotated[str | None, typer.Argument(help="What to say; read from standard input where it is a pipe.")]
PromptFile = Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")]
Raw = Annotated[bool, typer.Option("--raw", help="Complete the text as it is, without the chat template.")]
_TOP_K: Final = "Only the k most likely tokens; 0 is all."
_TOP_P: Final = "Only the most likely tokens that reach this probability."
_MIN_P: Final = "Only tokens of at least this part of the best one's probability."
_REPETITION: Final = "Above 1, tokens of the prompt and the answer so far are less likely; 1 is off."
TopK = Annotated[int, typer.Option(help=_TOP_K)]
TopP = Annotated[float, typer.Option(help=_TOP_P)]
MinP = Annotated[float, typer.Option(help=_MIN_P)]
RepetitionPenalty = Annotated[float, typer.Option(help=_REPETITION)]
AdvisedTemperature = Annotated[
    float | None, _advised("0 takes the most likely token; 1 the model's own spread.", TEMPERATURE)
]
AdvisedTopK = Annotated[int | None, _advised(_TOP_K, "0")]
AdvisedTopP = Annotated[float | None, _advised(_TOP_P, TOP_P)]
AdvisedMinP = Annotated[float | None, _advised(_MIN_P, "0")]
AdvisedRepetitionPenalty = Annotated[float | None, _advised(_REPETITION, "1")]
PresencePenalty = Annotated[float, typer.Option(help="Taken off the score of every token of the answer so far.")]
FrequencyPenalty = Annotated[float, typer.Option(help="The same, for each time that the token was said.")]
Seed = Annotated[int | None, typer.Option(help="For the same answer again; fresh and shown where none is given.")]
MaxTokens = Annotated[
    int, typer.Option(help="Tokens of the answer at most; a small model may not find an end by itself.")
]
MinTokens = Annotated[int, typer.Option(help="Tokens of the answer at least.")]
Stop = Annotated[list[str] | None, typer.Option(help="End the answer before this text; may be given several times.")]
Context = Annotated[int | None, typer.Option(help="Positions of prompt and answer; default, the model's, up to 8192.")]
Threads = Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")]
KV = Annotated[str, typer.Option("--kv", help="How keys and values are kept: paged, contiguous, or none.")]
KVDtype = Annotated[
    str, typer.Option("--kv-dtype", help="Type of keys and values: f16, f32, or int8 with a scale for each.")
]

IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the model's end of an answer.")]
System = Annotated[str | None, typer.Option(help="A system message to begin with.")]
ChatTemplate = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="In place of the model's own: chatml, gemma, llama2, llama3, mistral, phi3, zephyr, or a Jinja file.",
    ),
]
Logprobs = Annotated[
    int | None, typer.Option(help="With --json: log-probabilities of each token and of so many of the likeliest.")
]


def with_advice(given: Mapping[str, Any], advised: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gave, and for the rest what the model's authors advise; where they advise nothing, what suits a
    small model. None is not given.
    """
    own = advised or {"temperature": TEMPERATURE, "top_p": TOP_P}
    return {**own, **{name: value for name, value in given.items() if value is not None}}


def effective(params: Any) -> dict[str, Any]:
    """The fields of sampling parameters that are not at their defaults, for display and for files."""
    from dataclasses import fields

    return {
        each.name: getattr(params, each.name) for each in fields(params) if each.default != getattr(params, each.name)
    }
