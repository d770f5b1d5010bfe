"""The fields of a body that become ``SamplingParams``: declared there, with checks and meanings, and named here.

In: a body. Out: parameters, or an InvalidRequestError; the schema of each field, made of its check.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from cutaway.sampling.params import SamplingParams, declarations
from cutaway.sampling.params_checks import Biases, Check, Flag, Ids, Integer, Number, Texts
from cutaway.server.openai.fields import RequestBody

MOST_CHOICES: Final = 128
HIGHEST_TEMPERATURE: Final = 2.0

_DECLARED: Final = declarations()
_NARROWER: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "n": Integer(1, MOST_CHOICES, "Ask for the others in further requests."),
        "temperature": Number(0.0, HIGHEST_TEMPERATURE, "Use 0 for the likeliest token, 1 for the model's."),
    }
)
"""The checks of fields that OpenAI limits more than the engine does."""


def json_schema(check: Check) -> dict[str, Any]:
    """The JSON schema of what a check takes."""
    if isinstance(check, Number):
        low = "exclusiveMinimum" if check.exclusive else "minimum"
        return {"type": "number", low: check.low, "maximum": check.high}
    if isinstance(check, Integer):
        most = {} if check.high is None else {"maximum": check.high}
        return {"type": "integer", "minimum": check.low, **most}
    if isinstance(check, Flag):
        return {"type": "boolean"}
    if isinstance(check, Texts):
        text = {"type": "string", "minLength": 1}
        several = {"type": "array", "items": text, "maxItems": check.most}
        return {"anyOf": [text, several]} if check.one else several
    if isinstance(check, Ids):
        few = {} if check.may_be_empty else {"minItems": 1}
        return {"type": "array", "items": {"type": "integer", "minimum": 0}, **few}
    assert isinstance(check, Biases)
    return {"type": "object", "additionalProperties": {"type": "number", "minimum": check.low, "maximum": check.high}}


def sampled(name: str) -> Any:
    """The field of a schema that becomes the sampling parameter of this name; what it is given is checked there."""
    _, check, meaning = _DECLARED[name]
    schema = json_schema(_NARROWER.get(name, check))
    return Field(None, description=meaning, json_schema_extra={"anyOf": [schema, {"type": "null"}]})


def check_narrower(name: str, value: Any) -> None:
    """Refuse what OpenAI's limits of a field exclude."""
    if value is not None:
        _NARROWER[name](name, value)


class SamplingFields(RequestBody):
    """The sampling parameters that have the same name and meaning in all APIs."""

    temperature: Any = sampled("temperature")
    top_p: Any = sampled("top_p")
    top_k: Any = sampled("top_k")
    min_p: Any = sampled("min_p")
    n: Any = sampled("n")
    seed: Any = sampled("seed")
    stop: Any = sampled("stop")
    stop_token_ids: Any = sampled("stop_token_ids")
    ignore_eos: Any = sampled("ignore_eos")
    min_tokens: Any = sampled("min_tokens")
    presence_penalty: Any = sampled("presence_penalty")
    frequency_penalty: Any = sampled("frequency_penalty")
    repetition_penalty: Any = sampled("repetition_penalty")
    logit_bias: Any = sampled("logit_bias")
    allowed_token_ids: Any = sampled("allowed_token_ids")
    bad_words: Any = sampled("bad_words")
    skip_special_tokens: Any = sampled("skip_special_tokens")
    include_stop_str_in_output: Any = sampled("include_stop_str_in_output")

    def sampling_params(self, advised: Mapping[str, Any], **others: Any) -> SamplingParams:
        """The parameters. advised: where the body says nothing. others: those that an API has under other names; None
        is the default.
        """
        names = SamplingFields.model_fields.keys() - RequestBody.model_fields.keys()
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        for name in _NARROWER:
            if name in given:
                check_narrower(name, given[name])
        return SamplingParams(**{**advised, **given}, **others)
