"""The fields of a body that say how the answer is sent, and what comes beside it.

In: JSON. Out: a checked record.
"""

from pydantic import BaseModel, ConfigDict, Field

from cutaway.server.answers.beside import BesideFields
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.fields import RequestBody


class StreamOptions(BaseModel):
    """As OpenAI's. Without ``stream`` it changes nothing: the reply has its usage in any case."""

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # vLLM's; would send the usage so far with each chunk, too
    include_obfuscation: bool | None = None  # would pad chunks against eavesdroppers; that is left to who does TLS


class CacheField(RequestBody):
    """Whether the prompt may begin with what was computed before, by llama.cpp's name."""

    cache_prompt: bool | None = Field(
        None,
        description="false: compute the whole prompt, and read nothing of it from the prefix cache; default, true.",
    )

    @property
    def reads_cache(self) -> bool:
        """Whether the prefix cache is read."""
        return self.cache_prompt is not False


class ReplyFields(BesideFields, CacheField):
    """The same in chats and completions."""

    stream: bool | None = Field(None, description="Send the answer as it comes, as server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="With include_usage, the last chunk has the usage.")
    return_token_ids: bool | None = Field(None, description="Add the ids of the prompt and of the answers.")
    taps: list[str] | None = Field(
        None,
        description='Add "cutaway.taps": tensors of the computation, by names as "layers.3.attention"; docs/taps.md. '
        "Only where the server allows it.",
    )

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def ignored(self) -> list[str]:
        """The fields that are ignored; ApiError 400 for one that may not be."""
        for name in (self.stream_options and self.stream_options.model_extra) or {}:
            raise ApiError(
                400,
                f"stream_options has {name[:100]!r}; it knows include_usage. Leave it out.",
                f"stream_options.{name[:100]}",
                "unknown_field",
            )
        return super().ignored() + self._ignored_stream_options()

    def _ignored_stream_options(self) -> list[str]:
        given = self.stream_options.model_dump(exclude={"include_usage"}) if self.stream_options else {}
        return [f"stream_options.{name}" for name, value in given.items() if value]
