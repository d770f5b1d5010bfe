"""Answers of a form by a real model: whoever asks, and whatever the temperature."""

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest

from cutaway import LLM, AsyncEngine, SamplingParams, StructuredOutputsParams
from cutaway.errors import InvalidRequestError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["tea", "été", "日本"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "Who is there?"}]


@pytest.mark.parametrize("temperature", [0, 1.0, 3.0])
def test_every_answer_is_valid_and_the_same_whoever_asks(llm: LLM, temperature: float) -> None:
    params = SamplingParams(
        temperature=temperature, seed=4, n=2, max_tokens=150, structured_outputs=StructuredOutputsParams(json=SCHEMA)
    )
    alone, again = llm.chat([QUESTION, QUESTION], params)
    assert alone.outputs == again.outputs
    for each in alone.outputs:
        jsonschema.validate(json.loads(each.text), SCHEMA)
        assert each.finish_reason == "stop"
    streamed = llm.stream_chat(QUESTION, params)
    assert {delta.index for delta in streamed} == {0, 1}
    assert streamed.output().outputs == alone.outputs

    async def ask() -> Any:
        return await (await AsyncEngine(llm).submit_chat(QUESTION, params)).run()

    assert asyncio.run(ask()).outputs == alone.outputs


def test_forms_and_none_share_steps(llm: LLM) -> None:
    forms: list[Any] = [{"regex": "[0-9]{4}"}, None, {"choice": ["yes", "no"]}, {"json_object": True}]
    params = [SamplingParams(temperature=1.0, seed=1, max_tokens=12, structured_outputs=form) for form in forms]
    together = llm.generate(["The year is "] * 4, params)
    year, free, choice, some = (each.outputs[0] for each in together)
    assert re.fullmatch("[0-9]{4}", year.text)
    assert choice.text in ("yes", "no")
    assert some.text.startswith("{")
    assert free == llm.generate("The year is ", params[1])[0].outputs[0]
    assert year == llm.generate("The year is ", params[0])[0].outputs[0]


def test_what_can_t_be_enforced_is_told_before_anything_is_computed(llm: LLM) -> None:
    steps = llm.totals().steps
    wrong = SamplingParams(structured_outputs={"json": {"items": {"uniqueItems": True}}})
    with pytest.raises(InvalidRequestError) as error:
        llm.generate(["a", "b"], [SamplingParams(), wrong])
    assert error.value.field == "structured_outputs.json.items.uniqueItems"

    async def ask() -> None:
        await AsyncEngine(llm).submit("a", wrong)

    with pytest.raises(InvalidRequestError, match="uniqueItems can't be enforced"):
        asyncio.run(ask())
    assert llm.totals().steps == steps
