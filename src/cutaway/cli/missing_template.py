"""A model without a chat template, told in the command line's words.

In: a block that needs a template. Out: its error with the options to take in place of Python's arguments.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.errors import InvalidRequestError


@contextmanager
def missing_template_told(complete: str) -> Iterator[None]:
    """complete: how this command, or another, completes a text without a template."""
    from cutaway.tokenizer.built_in_templates import MissingTemplateError  # here: it is needed where a model is loaded

    try:
        yield
    except MissingTemplateError as error:
        raise InvalidRequestError(error.advice(complete, "--chat-template {}"), field=error.field) from error
