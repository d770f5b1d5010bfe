"""A chat as a file: JSON with the model's name, the messages, and the sampling parameters that are not the defaults.

In: messages and parameters. Out: a file, whole or not at all; and the same back, checked, or an error that says where
in the file it went wrong.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.hub.whole_file import write_whole

if TYPE_CHECKING:
    from cutaway.sampling.params import SamplingParams

FORMAT: Final = "cutaway-chat-1"
LARGEST_FILE: Final = 64 << 20  # bytes


class SavedChat(NamedTuple):
    """What a file has."""

    model: str
    messages: list[dict[str, str]]
    params: "SamplingParams"


def write_chat(path: Path, model: str, messages: Sequence[Mapping[str, str]], parameters: Mapping[str, Any]) -> None:
    """Save a chat. Raises InvalidRequestError where the file can't be written."""
    content = {"format": FORMAT, "model": model, "messages": messages, "parameters": parameters}
    try:
        write_whole(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode(), sync=True)
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be written ({error.strerror}). Give another path.", "file") from error


def read_chat(path: Path) -> SavedChat:
    """Load a chat. Raises ModelFileError for a file of another kind, InvalidRequestError for what is wrong in it."""
    from cutaway.engine.conversation import check_messages
    from cutaway.sampling.params import SamplingParams

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be read ({error.strerror}). Check the path.", "file") from error
    if len(data) > LARGEST_FILE:
        raise ModelFileError(f"{path} has more than {LARGEST_FILE} bytes, the limit of a chat. Give another file.")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        where = (
            f"line {error.lineno}, column {error.colno}: {error.msg}"
            if isinstance(error, json.JSONDecodeError)
            else str(error)
        )
        raise ModelFileError(f"{path} is not valid JSON ({where}). Mend it, or give another file.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFileError(f"{path} is no chat that /save wrote: its 'format' is not {FORMAT!r}. Give another file.")
    parameters = content.get("parameters", {})
    if not isinstance(parameters, dict):
        raise ModelFileError(f"{path}: 'parameters' is a {type(parameters).__name__}; it must be a mapping. Mend it.")
    try:
        return SavedChat(
            str(content.get("model")), check_messages(content.get("messages")), SamplingParams(**parameters)
        )
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error}", error.field) from error
