"""The arguments of tool calls: JSON text in the OpenAI protocol, mappings for most templates, text for some."""

import copy
import json
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import template_cases, tiny_metadata

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.tool_calls import with_arguments

CALLING = [case for case in template_cases() if any("tool_calls" in message for message in case["data"]["messages"])]
ARGUMENTS = {"city": "Zürich", "days": 3, "a": [1.5, None, True]}
ITEMS = (
    "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};"
    "{% endfor %}{% endfor %}{% endfor %}"
)
JSON = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
JOINED = (
    "{% for m in messages %}{% for c in m.tool_calls %}{{ '```json\n' + c.function.arguments + '\n```' }}"
    "{% endfor %}{% endfor %}"
)
PRINTED = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}{% endfor %}"
EITHER = (
    "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments if c.function.arguments is string "
    "else c.function.arguments | tojson }}{% endfor %}{% endfor %}"
)


def history(arguments: Any, **call: Any) -> list[dict[str, Any]]:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}, **call}]
    return [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "21"},
    ]


@lru_cache
def loaded(template: str) -> Tokenizer:
    return load_tokenizer(tiny_metadata(("<|im_start|>", "<|im_end|>"), chat_template=template))


def rendered(template: str, messages: Any, control: tuple[str, ...] = ("<s>", "</s>"), **options: Any) -> str:
    tokenizer = load_tokenizer(tiny_metadata(control, chat_template=template))
    return tokenizer.decode(tokenizer.encode_chat(messages, **options), skip_special=False)


@pytest.mark.parametrize("case", CALLING, ids=lambda case: case["name"])
@pytest.mark.parametrize("as_text", [False, True])
def test_published_templates_print_either_shape_alike(case: dict[str, Any], as_text: bool) -> None:
    """The goldens have mappings; clients send text."""
    data = copy.deepcopy(case["data"])
    messages = data.pop("messages")
    for message in messages:
        for call in message.get("tool_calls", ()):
            holder = call.get("function", call)
            if as_text:
                holder["arguments"] = json.dumps(holder["arguments"])
    tokens = {name: data.pop(name) for name in ("bos_token", "eos_token") if name in data}
    options = {name: data.pop(name) for name in ("add_generation_prompt", "tools") if name in data}
    ids = {name.replace("token", "token_id"): 259 + place for place, name in enumerate(tokens)}
    metadata = tiny_metadata(tuple(tokens.values()) or ("<s>",), chat_template=case["chat_template"], **ids)
    tokenizer = load_tokenizer(metadata)
    options = {"add_generation_prompt": False, **options}
    found = tokenizer.decode(tokenizer.encode_chat(messages, chat_template_kwargs=data, **options), skip_special=False)
    assert found == case["target"]


@pytest.mark.parametrize(
    "given", [ARGUMENTS, json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, ensure_ascii=False, indent=1)]
)
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (ITEMS, "city=Zürich;days=3;a=[1.5, None, True];"),
        (JSON, '{"city": "Zürich", "days": 3, "a": [1.5, null, true]}'),
        (EITHER, '{"city": "Zürich", "days": 3, "a": [1.5, null, true]}'),
    ],
)
def test_templates_that_want_a_mapping(template: str, given: Any, expected: str) -> None:
    assert rendered(template, history(given)) == expected


@pytest.mark.parametrize("given", [ARGUMENTS, json.dumps(ARGUMENTS, ensure_ascii=False)])
@pytest.mark.parametrize("template", [JOINED, PRINTED])
def test_templates_that_want_text(template: str, given: Any) -> None:
    """Joined to other text, where a mapping fails; and printed, where one is printed as Python does."""
    text = '{"city": "Zürich", "days": 3, "a": [1.5, null, true]}'
    assert rendered(template, history(given)) == (f"```json\n{text}\n```" if template == JOINED else text)


def test_a_template_that_refuses_the_probe_is_tried_with_the_messages() -> None:
    """It knows no role tool; with a mapping it fails, with text it doesn't."""
    refusal = "{% for m in messages if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endfor %}"
    given = '{"a":1}'
    assert rendered(refusal + JOINED, history(given)[:2]) == f"```json\n{given}\n```"
    with pytest.raises(InvalidRequestError, match="no tools"):
        rendered(refusal + JOINED, history(given))


def test_text_that_a_template_wants_stays_to_the_letter() -> None:
    given = '{"b":1,  "a":1.50}'
    assert rendered(PRINTED, history(given)) == given


@pytest.mark.parametrize(
    "given",
    [
        "{",
        "not json",
        "[1]",
        '"x"',
        "3",
        "null",
        "NaN",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        "{" * 100_000,
    ],
)
def test_what_is_no_json_object_stays_text(given: str) -> None:
    assert rendered(PRINTED, history(given)) == given
    assert rendered(JSON, history(given)) == json.dumps(given)


@pytest.mark.parametrize("given", ["", " \n"])
def test_an_empty_text_is_no_arguments(given: str) -> None:
    assert rendered(ITEMS, history(given)) == ""
    assert rendered(JSON, history(given)) == "{}"


@pytest.mark.parametrize("given", ['{"a": "\\ud83d"}', '{"\\udcf0": 1}', "\ud83d"])
def test_lone_surrogates_are_refused_with_the_field(given: str) -> None:
    with pytest.raises(InvalidRequestError, match="surrogate") as caught:
        rendered(JSON, history(given))
    assert caught.value.field is not None
    assert caught.value.field.startswith("messages[1].tool_calls[0].function.arguments")


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert rendered(JSON, history('{"a": "\\ud83d\\ude00"}')) == '{"a": "😀"}'


def test_deep_arguments_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="nested more than"):
        rendered(JSON, history('{"a": ' * 100 + "1" + "}" * 100))


@pytest.mark.parametrize(
    "calls", [None, [], [None], ["x"], [{}], [{"function": None}], [{"function": "f"}], {"a": 1}, "x"]
)
def test_other_shapes_are_the_templates_business(calls: Any) -> None:
    messages = [{"role": "assistant", "content": "a", "tool_calls": calls}]
    assert rendered("{{ messages[0].content }}", messages) == "a"


def test_the_callers_messages_are_untouched() -> None:
    messages = history('{"a": 1}')
    before = copy.deepcopy(messages)
    rendered(ITEMS, messages)
    assert messages == before


def test_a_template_that_fails_either_way_tells_the_first_reason() -> None:
    template = (
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.city.x.y }}{% endfor %}{% endfor %}"
    )
    with pytest.raises(InvalidRequestError, match="has no attribute 'x'"):
        rendered(template, history('{"city": "a"}'))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_there_and_back(arguments: dict[str, Any]) -> None:
    as_text, changed = with_arguments(history(arguments), as_text=True)
    assert changed
    given = as_text[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(given) == arguments
    back, _ = with_arguments(as_text, as_text=False)
    found = back[1]["tool_calls"][0]["function"]["arguments"]
    assert (found, list(found)) == (arguments, list(arguments))


@given(st.lists(st.sampled_from(["<|im_end|>", "<|", "im_end", "|>", "a", '"', "\\", "}"])).map("".join))
@pytest.mark.parametrize("template", [ITEMS, JSON, JOINED, PRINTED, EITHER])
def test_arguments_and_results_never_become_control_tokens(template: str, text: str) -> None:
    tokenizer = loaded(template + "{% for m in messages %}{{ m.content }}{% endfor %}")
    for arguments in ({text: text}, json.dumps({text: text}), *([text] if template != ITEMS else [])):
        messages = [*history(arguments), {"role": "tool", "tool_call_id": text, "content": text}]
        assert not any(map(tokenizer.is_special, tokenizer.encode_chat(messages)))
