"""Where a command's text comes from: an argument, a file or a pipe.

In: the argument and the option. Out: the text, without the line end at the end of a file or pipe.
"""

import sys
from pathlib import Path

from cutaway.errors import InvalidRequestError

LARGEST_PROMPT = 64 << 20  # bytes read from a file or a pipe


def read_prompt(prompt: str | None, file: Path | None, command: str) -> str:
    """The prompt's text from the one place that was named; from standard input where none was, or ``-``.

    Raises:
        InvalidRequestError: two places or none, a file that can't be read, too many bytes, or bytes that are no UTF-8.
    """
    if prompt is not None and file is not None:
        raise InvalidRequestError("there are a prompt and --file; give one of them.", "prompt")
    if file is not None:
        try:
            with file.open("rb") as stream:
                return _decode(stream.read(LARGEST_PROMPT + 1), str(file))
        except OSError as error:
            raise InvalidRequestError(
                f"--file {str(file)!r} can't be read ({error.strerror}). Check the path.", "file"
            ) from error
    if prompt is None or prompt == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InvalidRequestError(
                f'there is no prompt. Write it behind the model\'s name: cutaway {command} smollm2 "Hello", or pipe it '
                "in.",
                "prompt",
            )
        return _decode(sys.stdin.buffer.read(LARGEST_PROMPT + 1), "standard input")
    return prompt


def read_question(
    prompt: str | None, file: Path | None, command: str, *, raw: bool, system: str | None, chat_template: str | None
) -> str:
    """The text of a question; or with ``raw`` of what is to be completed, with neither system message nor template.

    Raises InvalidRequestError, also for a text that is empty, or none.
    """
    if raw and system is not None:
        raise InvalidRequestError("there are --system and --raw; a raw text has no system message. Leave one.", "raw")
    if raw and chat_template is not None:
        raise InvalidRequestError("there are --chat-template and --raw; a raw text has no template. Leave one.", "raw")
    text = read_prompt(prompt, file, command)
    if not text:
        raise InvalidRequestError("the prompt is empty; it must have at least 1 character. Write something.", "prompt")
    from cutaway.tokenizer.legal_text import check_legal  # here: a command that only explains itself needs no tokenizer

    check_legal(text, "the prompt")
    return text


def _decode(data: bytes, origin: str) -> str:
    if len(data) > LARGEST_PROMPT:
        raise InvalidRequestError(f"{origin} has more than {LARGEST_PROMPT} bytes, the limit of a prompt.", "prompt")
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{origin} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}.", "prompt"
        ) from error
