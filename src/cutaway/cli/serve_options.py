"""The options of ``cutaway serve``: each is also a variable ``CUTAWAY_…``.

In: nothing. Out: annotated types for the command's signature.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.recording import FILE, KEY, LEVEL


def _option(name: str, meaning: str, **further: Any) -> Any:
    """An option, and the variable that stands for it."""
    variable = "CUTAWAY_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(name, envvar=variable, help=meaning, **further)


Host = Annotated[str, _option("--host", "The address to listen at; 0.0.0.0 is all of this machine.")]
Port = Annotated[int, _option("--port", "0 takes a free one.")]
APIKey = Annotated[
    list[str] | None,
    _option(
        "--api-key",
        "What clients have to know, but for /health; once for each, or, in the variable, with spaces between.",
    ),
]
ServedModelName = Annotated[
    list[str] | None, _option("--served-model-name", "The model's name for clients; several may be given.")
]
MaxModelLen = Annotated[
    int | None, _option("--max-model-len", "Positions of prompt and answer; default, the model's, up to 8192.")
]
MaxNumSeqs = Annotated[int | None, _option("--max-num-seqs", "Answers that are computed together.")]
MaxNumBatchedTokens = Annotated[
    int | None, _option("--max-num-batched-tokens", "Tokens of a step; prompts are cut to it.")
]
MaxWaiting = Annotated[
    int | None, _option("--max-waiting", "Answers that may wait for their turn; more are refused by 429.")
]
Threads = Annotated[int | None, _option("--threads", "Default: the processors that this process may use.")]
Memory = Annotated[
    str | None, _option("--memory", "Of the whole process, as 2GiB; keys and values get what the rest leaves.")
]
KVDtype = Annotated[str, _option("--kv-dtype", "Of keys and values: f16, f32, or int8 with a scale for each.")]
ChatTemplate = Annotated[
    str | None, _option("--chat-template", "In place of the model's own: a built-in name, or a Jinja file.")
]
GenerationConfig = Annotated[
    str,
    _option(
        "--generation-config",
        "What a request's sampling is where it says nothing: auto, as the model's authors advise; vllm, 1 and all.",
    ),
]
Record = Annotated[Path | None, _option("--record", FILE, metavar="FILE")]
RecordLevel = Annotated[str | None, _option("--record-level", LEVEL)]
RecordKey = Annotated[Path | None, _option("--record-key", KEY, metavar="FILE")]
CORSOrigin = Annotated[
    list[str] | None,
    _option("--cors-origin", "Whose pages may use the server from a browser, as https://example.org; * is all."),
]
AllowedHost = Annotated[
    list[str] | None,
    _option("--allowed-host", "A further name by which clients call the server, as models.example.org; * is any."),
]
MaxBodySize = Annotated[str, _option("--max-body-size", "Of a request; more is refused by 413.")]
MaxTapBytes = Annotated[
    str | None,
    _option("--max-tap-bytes", "Let requests tap tensors, of so many bytes together, as 16MiB; default, none may."),
]
Grace = Annotated[float, _option("--grace", "Seconds that running requests have when the server ends.")]
LogFormat = Annotated[str, _option("--log-format", "text, or json: an object a line.")]
Timings = Annotated[
    bool,
    _option("--timings", "Let requests ask what they took, operation by operation: measures the machine first."),
]
