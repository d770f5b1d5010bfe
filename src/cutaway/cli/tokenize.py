"""``cutaway tokenize``: a text as the model gets it, token by token; or the text of ids.

In: a model and a text (argument, file or standard input), or ids; only the head of the model's file is read. Out: the
pieces in alternating colours on a terminal, then a line for each token: id, piece, bytes; or one JSON object. Lines are
written as they are made, so that a text of any length can be looked at.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console

from cutaway.cli.console import FetchProgress, error_console
from cutaway.cli.models import NAMES_A_MODEL, Json
from cutaway.cli.prompt import read_prompt
from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.hub import CATALOGUE, resolve
from cutaway.hub.catalogue import find_hub_alias

if TYPE_CHECKING:
    from cutaway.tokenizer import Tokenizer

EVEN, ODD, SPECIAL, RESET = "\x1b[30;46m", "\x1b[30;43m", "\x1b[30;45m", "\x1b[0m"  # black on a colour
TOKENIZER = "tokenizer.json"
WIDEST_PIECE = 32  # columns; what is wider pushes its bytes to the right
WRITTEN_AT_ONCE = 1_000  # parts


def tokenize(
    model: Annotated[str, typer.Argument(help=f"{NAMES_A_MODEL}; or a tokenizer.json, or a folder with one.")],
    text: Annotated[str | None, typer.Argument(help="The text; read from standard input where it is a pipe.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the text from a file.")] = None,
    special: Annotated[
        bool, typer.Option("--special", help="Turn the spelling of control tokens, as <|im_end|>, into the tokens.")
    ] = False,
    decode: Annotated[
        str | None, typer.Option("--decode", metavar="IDS", help="Print the text of these ids, as 1,2,3, instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a text's tokens: id, piece and bytes; or the text of ids."""
    if decode is not None and (text is not None or file is not None or special):
        raise InvalidRequestError("--decode takes ids in place of a text; give no text, --file or --special.", "decode")
    given = read_prompt(text, file, "tokenize") if decode is None else ""
    ids = [] if decode is None else _read_ids(decode)
    tokenizer = _open_tokenizer(model)
    if decode is None:
        ids = tokenizer.encode(given, parse_special=special)
    else:
        given = tokenizer.decode(ids, skip_special=False)
    if as_json:
        _write(_json(model, given, ids, tokenizer))
    elif decode is not None:
        _write([given, "\n"])
    else:
        console = Console(highlight=False, emoji=False)
        if console.is_terminal and console.color_system is not None and not console.no_color:
            _write(_coloured(ids, tokenizer))
        _write(_aligned(ids, tokenizer) if console.is_terminal else _tab_separated(ids, tokenizer))
        error_console().print(f"{len(ids)} tokens, {len(given)} characters", style="dim", soft_wrap=True)


def _open_tokenizer(model: str) -> "Tokenizer":
    # Imported here: the other commands shall not wait for the tokenizer to load.
    from cutaway.formats.open_model import open_model
    from cutaway.tokenizer import open_tokenizer
    from cutaway.tokenizer.huggingface import load_tokenizer_file

    if file := _tokenizer_file(model):
        return load_tokenizer_file(file)
    with FetchProgress(error_console()) as progress:
        path = resolve(model, progress).path
    with open_model(path) as source:
        return open_tokenizer(source)


def _tokenizer_file(model: str) -> Path | None:
    """The ``tokenizer.json`` that is named, or that a folder without weights has; None where a model is named."""
    if model in CATALOGUE or find_hub_alias(model):
        return None
    path = Path(model).expanduser()
    if model.endswith(".json"):
        if not path.exists():
            raise ModelFileError(f"no such file: {model!r}. Check the path.")
        return path
    if not path.is_dir() or not (path / TOKENIZER).is_file():
        return None
    weights = any(each.suffix.lower() in (".gguf", ".safetensors") for each in path.iterdir())
    return None if weights else path / TOKENIZER


def _read_ids(listed: str) -> list[int]:
    """Ids between commas, white space or both; in brackets, too, as JSON and Python write lists."""
    try:
        return [int(each) for each in listed.strip(" []").replace(",", " ").split()]
    except ValueError:
        raise InvalidRequestError(
            f"--decode is {listed[:80]!r}; it must be token ids with commas between them, as 1,2,3.", "decode"
        ) from None


def _row_of(tokenizer: "Tokenizer") -> Callable[[int], tuple[str, str]]:
    """Id → piece and bytes in hexadecimal; each is made once."""
    return cache(lambda token_id: (tokenizer.piece(token_id), tokenizer.token_bytes(token_id).hex(" ")))


def _coloured(ids: Iterable[int], tokenizer: "Tokenizer") -> Iterator[str]:
    """The pieces one behind the other; a line ends behind a piece that ends with a line end."""
    row = _row_of(tokenizer)
    for number, token_id in enumerate(ids):
        colour = SPECIAL if tokenizer.is_special(token_id) else (EVEN, ODD)[number % 2]
        piece = row(token_id)[0]
        yield f"{colour}{piece}{RESET}" + "\n" * piece.endswith("\\n")
    yield "\n\n"


def _aligned(ids: list[int], tokenizer: "Tokenizer") -> Iterator[str]:
    """Columns for people."""
    row = _row_of(tokenizer)
    digits = len(str(tokenizer.vocab_size - 1))
    width = min(WIDEST_PIECE, max((cell_len(row(token_id)[0]) for token_id in set(ids)), default=0))
    width = max(width, len("piece"))
    yield f"{'id':>{digits}}  {'piece':<{width}}  bytes\n"
    for token_id in ids:
        piece, data = row(token_id)
        yield f"{token_id:>{digits}}  {piece}{' ' * (width - cell_len(piece))}  {data}\n"


def _tab_separated(ids: Iterable[int], tokenizer: "Tokenizer") -> Iterator[str]:
    """Columns for programs; a tab within a piece is written as ``\\t``."""
    row = _row_of(tokenizer)
    for token_id in ids:
        yield "\t".join((str(token_id), *row(token_id))) + "\n"


def _json(model: str, text: str, ids: list[int], tokenizer: "Tokenizer") -> Iterator[str]:
    """One object, in parts."""
    row = _row_of(tokenizer)

    def token(token_id: int) -> dict[str, Any]:
        piece, data = row(token_id)
        return {"id": token_id, "piece": piece, "bytes": data, "special": tokenizer.is_special(token_id)}

    head = json.dumps({"model": model, "text": text, "ids": ids}, ensure_ascii=False)
    yield head.removesuffix("}") + ', "tokens": ['
    for number, token_id in enumerate(ids):
        yield (", " if number else "") + json.dumps(token(token_id), ensure_ascii=False)
    yield "]}\n"


def _write(parts: Iterable[str]) -> None:
    """Write the parts as they are made, many at once."""
    remaining = iter(parts)
    while some := list(islice(remaining, WRITTEN_AT_ONCE)):
        sys.stdout.write("".join(some))
    sys.stdout.flush()
