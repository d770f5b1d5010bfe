"""Chats with tools and thoughts: every format, whole and streamed, in OpenAI's shapes. The model is a script."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.server.http.errors import ApiError
from cutaway.server.openai.messages import read_messages
from cutaway.server.openai.tool_fields import ToolFields
from support.http_server import Reply, RunningServer, running
from support.patience import SECONDS
from support.scripted_model import ScriptedModel, scripted_model, template

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, CLOCK]
ARGUMENTS = '{"city": "Zürich", "days": 2}'
TWO = [("get_weather", ARGUMENTS), ("now", "{}")]
ANSWERS = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>\n"
    '<tool_call>\n{"arguments": {}, "name": "now"}\n</tool_call>',
    "json": '<|python_tag|>{"name": "get_weather", "parameters": ' + ARGUMENTS + '}; {"name": "now", "parameters": {}}',
    "mistral": "[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]" + ARGUMENTS + "[TOOL_CALLS]now[ARGS]{}",
    "tool_code": '```tool_code\nget_weather(city="Zürich", days=2)\nnow()\n```',
}


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""

    city: str
    days: int


class Place(NamedTuple):
    """A server, and the model behind it."""

    server: RunningServer
    model: ScriptedModel

    def ask(self, answer: str, *, ends: bool = True, **fields: Any) -> Reply:
        """A chat that gets this answer."""
        self.model.say(answer, ends=ends)
        return self.server.chat(**{"temperature": 0, **fields})

    def both(self, answer: str, *, ends: bool = True, **fields: Any) -> dict[str, Any]:
        """The only choice of the reply, which is the same whole and streamed."""
        (whole,) = self.ask(answer, ends=ends, **fields).json["choices"]
        reply = self.ask(answer, ends=ends, **fields, stream=True)
        streamed = joined(reply)
        want = {**whole["message"], "finish_reason": whole["finish_reason"]}
        want.update(content=want["content"] or "", refusal=None)
        for call in [*streamed.get("tool_calls", ()), *want.get("tool_calls", ())]:
            assert call.pop("id").startswith("call_")
        assert {"refusal": None, **streamed} == want
        return whole


def joined(reply: Reply) -> dict[str, Any]:
    """The message of a stream, put together; every rule of its form is asserted on the way."""
    *chunks, done = reply.events
    assert done == "[DONE]"
    found: dict[str, Any] = {"content": ""}
    (first,) = chunks[0]["choices"]
    assert first["delta"] == {"role": "assistant", "content": ""}
    found["role"] = "assistant"
    (last,) = chunks[-1]["choices"]
    assert last["delta"] == {}
    found["finish_reason"] = last["finish_reason"]
    for chunk in chunks[1:-1]:
        (choice,) = chunk["choices"]
        assert choice["finish_reason"] is None
        ((name, value),) = choice["delta"].items()
        if name == "tool_calls":
            (call,) = value
            calls = found.setdefault("tool_calls", [])
            if call["index"] == len(calls):
                assert set(call) == {"index", "id", "type", "function"}
                assert call["function"]["arguments"] == ""
                calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
            else:
                assert call["index"] == len(calls) - 1
                assert set(call) == {"index", "function"}
                assert set(call["function"]) == {"arguments"}
                assert call["function"]["arguments"]
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
        else:
            assert value
            found[name] = found.get(name, "") + value
    return found


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """A server for each template."""
    templates = {form: template(form) for form in (*ANSWERS, "unknown")}
    templates |= {
        "thinks": template("hermes", reasons=True),
        "opens": template("hermes", reasons=True, opens=True),
        "plain": template(None),
    }
    with ExitStack() as stack:
        found = {}
        for name, source in templates.items():
            folder = tmp_path_factory.mktemp(name)
            model = stack.enter_context(scripted_model(folder, source))
            found[name] = Place(stack.enter_context(running(model.llm, served_names=("scripted",))), model)
        yield found


@pytest.mark.parametrize("form", ANSWERS)
def test_calls_of_every_format(places: dict[str, Place], form: str) -> None:
    """Markers that are control tokens, as Mistral's, are seen by the parser; other control tokens by nobody."""
    choice = places[form].both(ANSWERS[form] + "<|hidden|>", tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    calls = choice["message"]["tool_calls"]
    assert [(each["function"]["name"], json.loads(each["function"]["arguments"])) for each in calls] == [
        (name, json.loads(arguments)) for name, arguments in TWO
    ]
    if form != "tool_code":
        assert [each["function"]["arguments"] for each in calls] == [arguments for _, arguments in TWO]
    assert {each["type"] for each in calls} == {"function"}


@pytest.mark.parametrize("form", ANSWERS)
def test_the_answer_is_left_alone_without_tools(places: dict[str, Place], form: str) -> None:
    """Markers are text then; where they are control tokens, they are none, as without a parser."""
    for fields in ({}, {"tools": []}, {"tools": None}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = places[form].both(ANSWERS[form], **fields)
        hidden = [each for each in ("<|python_tag|>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]") if each in ANSWERS[form]]
        text = ANSWERS[form]
        for each in hidden:
            text = text.replace(each, "")
        assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
        assert choice["finish_reason"] == "stop"


def test_only_the_answer_is_parsed(places: dict[str, Place]) -> None:
    messages = [{"role": "user", "content": ANSWERS["hermes"]}]
    choice = places["hermes"].both("Hello.", messages=messages, tools=TOOLS)
    assert choice["message"]["content"] == "Hello."
    assert "tool_calls" not in choice["message"]


def test_text_before_calls_and_quoted_markers(places: dict[str, Place]) -> None:
    choice = places["hermes"].both(f"I ask. {ANSWERS['hermes']}", tools=TOOLS)
    assert choice["message"]["content"] == "I ask. "
    assert len(choice["message"]["tool_calls"]) == 2
    quoted = 'Write <tool_call>{"name": …}</tool_call>.'
    choice = places["hermes"].both(quoted, tools=TOOLS)
    assert (choice["message"]["content"], choice["finish_reason"]) == (quoted, "stop")


@pytest.mark.parametrize("end", ["length", "stop string", "end of turn"])
def test_a_call_that_is_cut(places: dict[str, Place], end: str) -> None:
    """What there is of its arguments comes, and the reason is not that there are calls."""
    answer = ANSWERS["hermes"][: ANSWERS["hermes"].index(', "days')]
    fields: dict[str, Any] = {"tools": TOOLS}
    if end == "length":
        fields["max_tokens"] = len(answer.encode()) - len("<tool_call>") + 1
    elif end == "stop string":
        answer, fields["stop"] = ANSWERS["hermes"], [', "days']
    choice = places["hermes"].both(answer, ends=end == "end of turn", **fields)
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Zürich"'}
    assert choice["finish_reason"] == ("length" if end == "length" else "stop")


def test_one_call_at_most(places: dict[str, Place]) -> None:
    choice = places["hermes"].both(ANSWERS["hermes"], tools=TOOLS, parallel_tool_calls=False)
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert choice["message"]["content"] == '\n<tool_call>\n{"arguments": {}, "name": "now"}\n</tool_call>'


def test_ids_are_of_the_request_and_the_choice(places: dict[str, Place]) -> None:
    reply = places["hermes"].ask(ANSWERS["hermes"], tools=TOOLS, n=3).json
    ids = [call["id"] for choice in reply["choices"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 6
    other = places["hermes"].ask(ANSWERS["hermes"], tools=TOOLS, n=3).json
    assert not set(ids) & {call["id"] for choice in other["choices"] for call in choice["message"]["tool_calls"]}


def test_tokens_and_logprobs_of_a_streamed_call(places: dict[str, Place]) -> None:
    """None is lost, though some become no part of the message."""
    fields = {"tools": TOOLS, "logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    place = places["thinks"]
    answer = f"<think>Hm.</think>\n{ANSWERS['hermes']}\n"
    whole = place.ask(answer, **fields).json["choices"][0]
    *chunks, _ = place.ask(answer, **fields, stream=True).events
    choices = [each["choices"][0] for each in chunks]
    assert [token for each in choices for token in each.get("token_ids", ())] == whole["token_ids"]
    entries = [entry for each in choices if each["logprobs"] for entry in each["logprobs"]["content"]]
    assert entries == whole["logprobs"]["content"]
    assert len(entries) == len(whole["token_ids"]) == len(place.model.say(answer))


def test_the_prompt_has_the_tools(places: dict[str, Place]) -> None:
    """As the template writes them; strict is no part of what the model reads, what a definition lacks is filled in."""
    place = places["hermes"]
    strict = json.loads(json.dumps(TOOLS))
    strict[0]["function"]["strict"] = True
    strict[0]["function"]["return"] = {"type": "string"}
    reply = place.ask("x", tools=strict, return_token_ids=True).json
    weather = {"type": "function", "function": {**WEATHER["function"], "return": {"type": "string"}}}
    clock = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": "Hello"}]
    want = place.model.llm.tokenizer.encode_chat(messages, tools=[weather, clock])
    assert reply["prompt_token_ids"] == want
    for path in ("/tokenize", "/apply-template"):
        found = place.server.post(path, {"messages": messages, "tools": strict}).json
        assert found.get("tokens", want) == want
        assert found.get("prompt", "get_weather").count("get_weather") == 1


def test_a_conversation_with_results(places: dict[str, Place]) -> None:
    """A call goes back as it came, and its result; Mistral's template gets ids of nine letters and digits."""
    for form, place in places.items():
        if form not in ANSWERS:
            continue
        message = place.ask(ANSWERS[form], tools=TOOLS).json["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "21"} for call in message["tool_calls"]]
        messages = [{"role": "user", "content": "Hello"}, message, *results]
        reply = place.ask("It is warm.", messages=messages, tools=TOOLS, return_token_ids=True).json
        assert reply["choices"][0]["message"]["content"] == "It is warm."
        prompt = place.model.llm.tokenizer.decode(reply["prompt_token_ids"], skip_special=False)
        assert "Zürich" in prompt
        assert prompt.count("21<|im_end|>") == 2
        if form == "mistral":
            assert not any(call["id"] in prompt for call in message["tool_calls"])


def test_calls_for_a_template_that_leaves_them_out(tmp_path: Path) -> None:
    """As SmolLM3's: it tells the model how to call, and shows none of its calls. They stand in the text then."""
    told = 'Write <tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call>'
    source = f"{{% if tools %}}{{{{ tools[0].function.name }}}} {{{{ {told!r} }}}}{{% endif %}}{template(None)}"
    with scripted_model(tmp_path, source) as model, running(model.llm) as server:
        form = model.llm.tokenizer.answer_format
        assert (form.calls, form.takes_tools, form.takes_calls) == ("hermes", True, False)
        call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
        messages = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "I ask.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "21"},
        ]
        prompt = server.post("/apply-template", {"messages": messages, "tools": TOOLS}).json["prompt"]
        written = f'I ask.\n<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call><|im_end|>'
        assert written in prompt


def test_models_without_tools_say_so(places: dict[str, Place]) -> None:
    for name, words in (("plain", "has no place for any"), ("unknown", "a format that is not known here")):
        reply = places[name].server.chat(tools=TOOLS)
        assert (reply.status, reply.error["param"]) == (400, "tools")
        assert words in reply.error["message"]
        assert "--chat-template" in reply.error["message"]
        assert places[name].ask("x", tools=TOOLS, tool_choice="none").status == 200


def test_reasoning(places: dict[str, Place]) -> None:
    for name, answer in (
        ("thinks", "<think>\nHm.\n</think>\n\nYes."),
        ("opens", "Hm.\n</think>\n\nYes."),
    ):
        choice = places[name].both(answer)
        want = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "refusal": None}
        assert (choice["message"], choice["finish_reason"]) == (want, "stop")
        cut = places[name].both(answer[: answer.index("\n</think>")], ends=False, max_tokens=len("Hm."))
        assert cut["message"]["content"] == ""
        assert cut["finish_reason"] == "length"
    plain = places["hermes"].both("<think>Hm.</think>Yes.")["message"]
    assert plain == {"role": "assistant", "content": "<think>Hm.</think>Yes.", "refusal": None}


def test_reasoning_before_a_call(places: dict[str, Place]) -> None:
    choice = places["opens"].both(f"Shall I write {ANSWERS['hermes']}?</think>{ANSWERS['hermes']}", tools=TOOLS)
    assert choice["message"]["reasoning_content"] == f"Shall I write {ANSWERS['hermes']}?"
    assert len(choice["message"]["tool_calls"]) == 2
    assert choice["finish_reason"] == "tool_calls"


def test_reasoning_in_a_conversation(places: dict[str, Place]) -> None:
    """Earlier thoughts reach the template; thoughts that a last message has begun are gone on with."""
    place = places["thinks"]
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."},
        {"role": "user", "content": "And?"},
    ]
    reply = place.ask("x", messages=messages, return_token_ids=True).json
    prompt = place.model.llm.tokenizer.decode(reply["prompt_token_ids"], skip_special=False)
    assert "assistant\n<think>Hm.</think>Yes.<|im_end|>" in prompt
    begun = [messages[0], {"role": "assistant", "content": "<think>I"}]
    assert place.both(" think.</think>No.", messages=begun)["message"]["reasoning_content"] == " think."
    ended = [messages[0], {"role": "assistant", "content": "<think>I</think>N"}]
    assert place.both("o.", messages=ended)["message"]["content"] == "o."


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": {}}, "tools", "tools is {}; it must be a list of tools"),
    ({"tools": [5]}, "tools[0]", "tools[0] is 5; it must be an object"),
    ({"tools": [{}]}, "tools[0].type", "tools[0].type is missing; it must be 'function'"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "tools[0].type is 'web_search'"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "is missing"),
    ({"tools": [{"type": "function", "function": []}]}, "tools[0].function", "an object with name"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "is missing"),
    ({"tool_choice": "required", "tools": []}, "tool_choice", "send tools"),
    ({"tool_choice": "any"}, "tool_choice", "tool_choice is 'any'; it must be"),
    ({"tool_choice": 5}, "tool_choice", "tool_choice is 5"),
    ({"tool_choice": {}}, "tool_choice.type", "is missing"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", "'allowed_tools'"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function", "is missing"),
    ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name", "is missing"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice.function.name",
        "'f'; it must be one of get_weather, now",
    ),
    (
        {"tools": None, "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice.function.name",
        "there are no tools",
    ),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "boolean"),
    ({"tools": [CLOCK] * 129}, "tools", "tools has 129 entries; the limit is 128"),
    ({"tools": [WEATHER, CLOCK, WEATHER]}, "tools[2].function.name", "'get_weather', as of tools[0]"),
    ({"functions": [{"name": "f"}]}, "functions", "use tools"),
]
FUNCTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "a b"}, "name", "1 to 64 letters"),
    ({"name": "f" * 65}, "name", "1 to 64 letters"),
    ({"name": ""}, "name", "1 to 64 letters"),
    ({"name": "ü"}, "name", "1 to 64 letters"),
    ({"name": "f\n"}, "name", "1 to 64 letters"),
    ({"name": 5}, "name", "1 to 64 letters"),
    ({"description": 5}, "description", "a text"),
    ({"description": "\ud83d"}, "description", "lone surrogate"),
    ({"strict": "yes"}, "strict", "true or false"),
    ({"parameters": []}, "parameters", "a JSON schema"),
    ({"parameters": "{}"}, "parameters", "a JSON schema"),
    ({"parameters": {"type": "string"}}, "parameters.type", "'object'"),
    ({"parameters": {"properties": []}}, "parameters.properties", "name → JSON schema"),
    ({"parameters": {"properties": {"a": "string"}}}, "parameters.properties.a", "a JSON schema"),
    ({"parameters": {"required": "a"}}, "parameters.required", "a list of names"),
    ({"parameters": {"required": [1]}}, "parameters.required[0]", "a name"),
]
BAD += [
    ({"tools": [CLOCK, {"type": "function", "function": {"name": "f", **each}}]}, f"tools[1].function.{param}", words)
    for each, param, words in FUNCTIONS
]


@pytest.mark.parametrize(("fields", "param", "words"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_what_is_wrong_with_tools(places: dict[str, Place], fields: dict[str, Any], param: str, words: str) -> None:
    for stream in (False, True):
        reply = places["hermes"].server.chat(**{"tools": TOOLS, "stream": stream, **fields})
        assert (reply.status, reply.error["param"]) == (400, param)
        assert words in reply.error["message"]
        assert reply.error["code"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["function", "f", "required"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "function", "name", "parameters", "strict", "id", "arguments", "role", "content"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


def refusal(read: Callable[[], object]) -> ApiError | None:
    """What reading is refused with."""
    try:
        read()
    except ApiError as error:
        return error
    return None


@settings(max_examples=50)
@given(VALUES, VALUES, VALUES)
def test_any_tools_choice_and_calls(tools: Any, choice: Any, calls: Any) -> None:
    """They are taken, or refused by the path of what is wrong, whatever is sent."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": calls}]
    for name, read in (
        ("tools", lambda: ToolFields(tools=tools).tool_use()),
        ("tool_choice", lambda: ToolFields(tools=TOOLS, tool_choice=choice).tool_use()),
        ("messages", lambda: read_messages(messages)),
    ):
        error = refusal(read)
        if error is not None:
            assert error.status_code == 400
            assert error.param is not None
            assert re.split(r"[.\[]", error.param)[0] == name
            assert error.param in error.message


@pytest.fixture
def client(places: dict[str, Place]) -> Iterator[openai.OpenAI]:
    base = f"{places['hermes'].server.url}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=SECONDS) as made:
        yield made


def test_openais_client(places: dict[str, Place], client: openai.OpenAI) -> None:
    """Whole, and by its accumulator, which parses the arguments of strict tools."""
    messages: Any = [{"role": "user", "content": "Hello"}]
    tools: Any = [openai.pydantic_function_tool(GetWeather, name="get_weather"), CLOCK]
    fields: Any = {"model": "scripted", "messages": messages, "temperature": 0}
    places["hermes"].model.say(ANSWERS["hermes"])
    whole = client.chat.completions.create(**fields, tools=TOOLS, parallel_tool_calls=True).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.tool_calls is not None
    first = whole.message.tool_calls[0]
    assert first.type == "function"
    assert (first.function.name, first.function.arguments) == TWO[0]
    in_order = ANSWERS["hermes"].replace('{"arguments": {}, "name": "now"}', '{"name": "now", "arguments": {}}')
    places["hermes"].model.say("Well. " + in_order)
    strict = [tools[0], {"type": "function", "function": {"name": "now", "strict": True, "parameters": {}}}]
    with client.chat.completions.stream(**fields, tools=strict) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert final.finish_reason == "tool_calls"
    assert final.message.content == "Well. "
    assert final.message.tool_calls is not None
    assert final.message.tool_calls[0].function.parsed_arguments == GetWeather(city="Zürich", days=2)
    assert [call.function.arguments for call in final.message.tool_calls] == [arguments for _, arguments in TWO]
