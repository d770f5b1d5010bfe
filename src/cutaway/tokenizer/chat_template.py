"""Chat messages to one prompt text, by the Jinja template that comes with the model.

In: a template, messages whose strings are marked as user text, and variables. Out: the rendered text, in
which marks still tell user text from template text. The environment is Hugging Face's: ``raise_exception``,
``strftime_now``, ``tojson``, loop controls, blocks trimmed.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import CodeType
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError

from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError
from cutaway.tokenizer.provenance import Marks, plain
from cutaway.tokenizer.template_allowance import RenderLimits
from cutaway.tokenizer.template_filters import MAX_NAME
from cutaway.tokenizer.template_sandbox import TemplateSandbox
from cutaway.tokenizer.template_source import MAX_SOURCE, UNSOUND


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja source from the model file.
        marks: how user text is marked.
        limits: what one rendering may use; 64 units of material for each character of the messages and variables
            come on top.

    Raises:
        ModelFileError: the source is too long or not valid.
    """

    def __init__(self, source: str, marks: Marks, limits: RenderLimits | None = None) -> None:
        if len(source) > MAX_SOURCE:
            raise ModelFileError(
                f"the chat template has {len(source)} characters; at most {MAX_SOURCE} are read; {UNSOUND}"
            )
        self._marks = marks
        self._limits = limits or RenderLimits()
        try:
            self._code: CodeType = TemplateSandbox(marks, self._limits).compile(source)
        except SecurityError as error:
            raise ModelFileError(f"the chat template is refused: {error}; {UNSOUND}") from error
        except Exception as error:  # the source is foreign, and the compiler may stumble over it in any way
            raise ModelFileError(
                f"the chat template can't be compiled: {type(error).__name__}: {error}; {UNSOUND}"
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        now: Callable[[], datetime] = datetime.now,
    ) -> str:
        """The prompt text, with marks.

        Args:
            messages: as ``mark_messages`` returns them.
            variables: what else the template may read: ``tools``, ``bos_token``, …

        Raises:
            ModelFileError: the template breaks out of the sandbox or uses too much time or memory.
            InvalidRequestError: the template refuses these messages or fails on them.
        """
        per_character = 64
        limits = RenderLimits(
            material=self._limits.material + per_character * (_size(messages) + _size(variables)),
            seconds=self._limits.seconds,
        )
        sandbox = TemplateSandbox(self._marks, limits)

        def raise_exception(reason: Any) -> NoReturn:
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {sandbox.printed_text(reason).plain}",
                field="messages",
            )

        def strftime_now(form: str) -> str:
            if len(form) > MAX_NAME:
                raise SecurityError(f"it formats the date with more than {MAX_NAME} characters")
            return now().strftime(plain(form))

        functions = {"raise_exception": raise_exception, "strftime_now": strftime_now}
        template = Template.from_code(sandbox, self._code, {**sandbox.globals, **functions})
        try:
            return "".join(template.generate({**variables, "messages": messages}))
        except CutawayError:
            raise
        except (SecurityError, OverflowError, RecursionError, MemoryError) as error:
            raise ModelFileError(f"the chat template is refused: {error}; {UNSOUND}") from error
        except Exception as error:  # a foreign program failed on these messages
            kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
            raise InvalidRequestError(
                f"the model's chat template can't render these messages: {kind}"
                f"{self._marks.unmark(str(error))}; "
                "each message needs a 'role' that the template knows and a text as 'content'",
                field="messages",
            ) from error


def _size(value: Any) -> int:
    """Characters and elements in a value and everything inside it."""
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, Mapping):
        return 1 + sum(_size(key) + _size(item) for key, item in value.items())
    return 1 + sum(map(_size, value)) if isinstance(value, (list, tuple)) else 1
