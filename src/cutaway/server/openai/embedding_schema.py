"""The body of ``/v1/embeddings``.

In: JSON. Out: a checked record. Source: OpenAI's API reference, "Create embeddings"; ``pooling`` and what begins with
``return_`` are this server's own.
"""

from typing import Any

from pydantic import Field

from cutaway.engine.pooling import DEFAULT_POOLING, POOLINGS, Pooling, check_pooling
from cutaway.sampling.params_checks import is_integer, shown
from cutaway.server.answers.beside import BesideFields
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.prompts import PROMPT_SCHEMA

FORMATS = ("float", "base64")


class EmbeddingRequest(BesideFields):
    """Texts to be embedded."""

    input: Any = Field(
        description="A text, a list of texts, a list of token ids, or a list of such lists.",
        json_schema_extra=PROMPT_SCHEMA,
    )
    encoding_format: Any = Field(
        None,
        description="base64: the bytes of little-endian float32 values; default, float: a list of numbers.",
        json_schema_extra={"enum": [*FORMATS, None]},
    )
    dimensions: Any = Field(None, description="Must be the model's width: its vectors are not made to be cut.")
    pooling: Any = Field(
        None,
        description=f"Which of the last hidden states: the last token's, or the mean; default, {DEFAULT_POOLING}.",
        json_schema_extra={"enum": [*POOLINGS, None]},
    )
    return_parameters: bool | None = Field(None, description='Add to "cutaway" which fields were ignored.')

    def wants_base64(self) -> bool:
        """Whether vectors are sent as bytes."""
        if self.encoding_format is not None and self.encoding_format not in FORMATS:
            raise ApiError(
                400,
                f"encoding_format is {shown(self.encoding_format)}; it must be float or base64. Leave it out for "
                "float.",
                "encoding_format",
                "invalid_value",
            )
        return bool(self.encoding_format == "base64")

    def pooling_in_effect(self) -> Pooling:
        """One of ``POOLINGS``."""
        return DEFAULT_POOLING if self.pooling is None else check_pooling(self.pooling)

    def check_dimensions(self, width: int) -> None:
        """Refuse another number of dimensions than the model has: a part of such a vector is not an embedding."""
        if self.dimensions is not None and not (is_integer(self.dimensions) and self.dimensions == width):
            raise ApiError(
                400,
                f"dimensions is {shown(self.dimensions)}; this model's vectors have {width} and are not made to be "
                "cut. Leave it out.",
                "dimensions",
                "unsupported_parameter",
            )
