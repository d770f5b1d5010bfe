"""Chat templates for models whose file has none: built-in ones by name, others from a file.

In: a name, a path, or Jinja source. Out: the source. The built-in ones are the files in ``templates/``.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.template_source import MAX_SOURCE

BUILT_IN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "chatml": ("<|im_start|>", "<|im_end|>"),
        "gemma": ("<start_of_turn>", "<end_of_turn>"),
        "llama2": (),
        "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "mistral": (),
        "phi3": ("<|user|>", "<|assistant|>", "<|end|>"),
        "zephyr": (),
    }
)
"""Name → the control tokens that the template writes; a vocabulary without them was trained on another one."""

_FOLDER = Path(__file__).parent / "templates"
_BYTES_A_CHARACTER = 4  # of UTF-8, at most


def built_in_source(name: str) -> str:
    """The source of the built-in template of this name."""
    return (_FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


def find_template(given: str | os.PathLike[str], control: Collection[str]) -> str:
    """The Jinja source that a user means by a built-in name, by the path of a file, or by itself.

    Args:
        given: the built-in names come first, whatever the working folder holds; text with a brace is Jinja.
        control: the vocabulary's control tokens.

    Raises:
        InvalidRequestError: it is none of these, can't be read, or writes control tokens that the vocabulary lacks.
    """
    if isinstance(given, str) and given in BUILT_IN:
        missing = [token for token in BUILT_IN[given] if token not in control]
        if missing:
            raise InvalidRequestError(
                f"the built-in template {given!r} writes {', '.join(missing)}, which this model's vocabulary lacks; "
                f"it was trained on another one. {fitting(control)}",
                field="chat_template",
            )
        return built_in_source(given)
    if not isinstance(given, str | os.PathLike):
        raise InvalidRequestError(
            f"chat_template is a {type(given).__name__}; it must be a built-in name ({', '.join(BUILT_IN)}), the path "
            "of a Jinja file, or Jinja source.",
            "chat_template",
        )
    if isinstance(given, str) and "{" in given:
        return given
    try:
        with open(os.path.expanduser(given), "rb") as file:
            data = file.read(_BYTES_A_CHARACTER * MAX_SOURCE + 1)
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"chat_template {os.fspath(given)!r} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}.",
            field="chat_template",
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRequestError(
            f"chat_template is {os.fspath(given)!r}, no built-in name ({', '.join(BUILT_IN)}) and no file that can "
            f"be read ({reason}).",
            field="chat_template",
        ) from error


def fitting_names(control: Collection[str]) -> tuple[str, ...]:
    """The built-in templates whose control tokens are all among these. One that writes none fits by nothing."""
    return tuple(name for name, tokens in BUILT_IN.items() if tokens and all(token in control for token in tokens))


def fitting(control: Collection[str]) -> str:
    """A sentence on which built-in template to take with a vocabulary that has these control tokens."""
    if names := fitting_names(control):
        return f"Its tokens fit the built-in template {' or '.join(names)}."
    return f"Built in are {', '.join(BUILT_IN)}; which one fits, the model's authors say."


class MissingTemplateError(InvalidRequestError):
    """Messages for a model that has no chat template. The message is for Python; ``advice`` words it for others."""

    def __init__(self, fitting: Sequence[str]) -> None:
        """fitting: the built-in templates that the vocabulary fits."""
        self._fitting = fitting
        super().__init__(self.advice("complete texts with generate", 'chat_template="{}"'), field="messages")

    def advice(self, complete: str, template: str) -> str:
        """What to do: for a base model ``complete``; for another ``template``, in which {} stands for the name."""
        start = f"this model has no chat template. It is probably a base model, not trained to chat: {complete}."
        if self._fitting:
            ways = " or ".join(template.format(name) for name in self._fitting)
            return f"{start} If it is an instruct model, {ways} fits its tokens."
        return (
            f"{start} If it is an instruct model, {template.format('…')} takes the one that its authors name: "
            f"{', '.join(BUILT_IN)}, or a Jinja file."
        )
