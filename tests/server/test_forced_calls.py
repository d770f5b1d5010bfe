"""Calls that are demanded, and arguments that must follow their schema: whatever the model would say."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from cutaway.grammar.json_schema import CheckedSchema
from cutaway.server.answers import forms
from cutaway.server.service import CHECKERS
from support.http_server import Reply, RunningServer, running
from support.patience import SECONDS
from support.scripted_model import ScriptedModel, scripted_model, template

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Paris", "Zürich"]}},
}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, CLOCK]
STRICT = [{"type": "function", "function": {**each["function"], "strict": True}} for each in TOOLS]
PARIS = '{"city": "Paris"}'
ANSWERS = {  # two calls, as each format has them
    "hermes": f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "json": f'{{"name": "get_weather", "parameters": {PARIS}}}; {{"name": "now", "parameters": {{}}}}',
    "mistral": f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]',
    "mistral_named": f"[TOOL_CALLS]get_weather[ARGS]{PARIS}[TOOL_CALLS]now[ARGS]{{}}",
}
ONE = {"type": "function", "function": {"name": "get_weather"}}


class Place(NamedTuple):
    """A server, and the model behind it."""

    server: RunningServer
    model: ScriptedModel

    def ask(self, answer: str, **fields: Any) -> Reply:
        """A chat whose model wants to give this answer."""
        self.model.say(answer)
        return self.server.chat(**{"temperature": 0, "max_tokens": 400, **fields})

    def calls(self, answer: str, **fields: Any) -> list[tuple[str, Any]]:
        """The calls of the answer, which has nothing else and ends with them."""
        (choice,) = self.ask(answer, **fields).json["choices"]
        assert choice["finish_reason"] == "tool_calls", choice
        assert choice["message"]["content"] is None
        functions = [call["function"] for call in choice["message"]["tool_calls"]]
        return [(each["name"], json.loads(each["arguments"])) for each in functions]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """A server for each template."""
    templates = {form: template(form) for form in (*ANSWERS, "tool_code")}
    templates["opens"] = template("hermes", reasons=True, opens=True)
    templates["thinks"] = template("mistral_named", reasons=True)
    with ExitStack() as stack:
        found = {}
        for name, source in templates.items():
            model = stack.enter_context(scripted_model(tmp_path_factory.mktemp(name), source))
            found[name] = Place(stack.enter_context(running(model.llm)), model)
        yield found


@pytest.mark.parametrize("form", ANSWERS)
def test_a_call_that_is_demanded_comes(places: dict[str, Place], form: str) -> None:
    place = places[form]
    for wanted in ("Hello.", "", ANSWERS[form].replace("get_weather", "unknown").replace("Paris", "Rome")):
        ((name, arguments),) = place.calls(wanted, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
        assert arguments in ([{"city": "Paris"}, {"city": "Zürich"}] if name == "get_weather" else [{}])
        ((name, arguments),) = place.calls(wanted, tools=TOOLS, tool_choice=ONE, parallel_tool_calls=False)
        assert name == "get_weather"
        assert arguments["city"] in ("Paris", "Zürich")


@pytest.mark.parametrize("form", ANSWERS)
def test_calls_that_are_of_the_form_are_left_alone(places: dict[str, Place], form: str) -> None:
    both = [("get_weather", {"city": "Paris"}), ("now", {})]
    for fields in ({"tools": TOOLS, "tool_choice": "required"}, {"tools": STRICT}):
        assert places[form].calls(ANSWERS[form], **fields) == both
    one = places[form].calls(ANSWERS[form], tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert one == both[:1]


@pytest.mark.parametrize("form", ANSWERS)
def test_strict_tools_leave_text_alone(places: dict[str, Place], form: str) -> None:
    texts = ["Hello.", "<tool", "[TOOL", 'It is {"name": "f"}.', '{"people": []}', "```python\nprint(1)\n```", "\n a"]
    for text in texts:
        (choice,) = places[form].ask(text, tools=STRICT).json["choices"]
        assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("form", ANSWERS)
def test_arguments_of_strict_tools_follow_their_schema(places: dict[str, Place], form: str) -> None:
    """With text before them, and where a model leaves out the markers."""
    wrong = ANSWERS[form].replace("Paris", "Rome")
    wanted = [wrong]
    if form != "json":
        wanted.append(f"I ask. {wrong}")
    if form in ("json", "hermes"):
        key = "parameters" if form == "json" else "arguments"
        bare = f'{{\n  "name": "get_weather",\n  "{key}": {{\n    "city": "Rome"\n  }}\n}}'
        wanted += [f"```json\n{bare}\n```", f"[{bare}]", f"```json\n[\n{bare},\n{bare}\n]\n```"]
    for each in wanted:
        (choice,) = places[form].ask(each, tools=STRICT).json["choices"]
        first = choice["message"]["tool_calls"][0]["function"]
        assert first["name"] == "get_weather"
        assert json.loads(first["arguments"])["city"] in ("Paris", "Zürich")
    free = places[form].ask(wrong, tools=TOOLS).json["choices"][0]["message"]["tool_calls"][0]["function"]
    assert json.loads(free["arguments"]) == {"city": "Rome"}, "without strict it is the model's"


@pytest.mark.parametrize("form", ["json", "hermes"])
def test_unmarked_lists_of_strict_tools(places: dict[str, Place], form: str) -> None:
    """They are calls to whoever reads the answer, and so they are to who enforces it; they stay as they are written."""
    key = "parameters" if form == "json" else "arguments"
    one, other = (f'{{"name": "{name}", "{key}": {value}}}' for name, value in (("get_weather", PARIS), ("now", "{}")))
    both = [("get_weather", {"city": "Paris"}), ("now", {})]
    for text in (f"[{one}, {other}]", f"[\n {one},\n {other}\n]", f"```json\n[{one}, {other}]\n```"):
        assert places[form].calls(text, tools=STRICT) == both
    assert places[form].calls(f"[{one}]", tools=STRICT, parallel_tool_calls=False) == both[:1]
    # A control token as text: to the parser the same as the token, so nothing may hide behind it.
    wrong = one.replace("Paris", "Rome")
    for text in (f"<|python_tag|>{wrong}", f" [{wrong}]", f"<|python_tag|>```[ {wrong}]"):
        places[form].model.say(text, special=False)
        (choice,) = places[form].server.chat(tools=STRICT, temperature=0, max_tokens=400).json["choices"]
        for call in choice["message"].get("tool_calls") or ():
            assert json.loads(call["function"]["arguments"]).get("city") != "Rome"


def test_thoughts_before_a_call_that_is_demanded(places: dict[str, Place]) -> None:
    for name, answer in (
        ("opens", f"Hm. {ANSWERS['hermes']}</think>\n\n{ANSWERS['hermes']}"),
        ("thinks", f"<think>Hm.</think>\n{ANSWERS['mistral_named']}"),
        ("thinks", ANSWERS["mistral_named"]),
    ):
        (choice,) = places[name].ask(answer, tools=TOOLS, tool_choice="required").json["choices"]
        assert choice["message"].get("reasoning_content", "Hm.").startswith("Hm.")
        assert len(choice["message"]["tool_calls"]) == 2
        assert choice["finish_reason"] == "tool_calls"


def test_a_form_beside_tools_and_thoughts(places: dict[str, Place]) -> None:
    """The answer is calls, or of the form; thoughts come before either."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [{"a": 1}, {"b": 2}]}}}
    place = places["opens"]
    (choice,) = place.ask('Hm.</think>{"b": 2}', tools=TOOLS, response_format=form).json["choices"]
    assert (choice["message"]["reasoning_content"], json.loads(choice["message"]["content"])) == ("Hm.", {"b": 2})
    (choice,) = place.ask('Hm.</think>{"b": 2}', response_format=form).json["choices"]
    assert (choice["message"]["reasoning_content"], json.loads(choice["message"]["content"])) == ("Hm.", {"b": 2})
    (choice,) = place.ask(f"Hm.</think>{ANSWERS['hermes']}", tools=TOOLS, response_format=form).json["choices"]
    assert len(choice["message"]["tool_calls"]) == 2
    (choice,) = place.ask("b", structured_outputs={"choice": ["a", "b"]}).json["choices"]
    assert choice["message"] == {"role": "assistant", "content": "b", "refusal": None}
    # What can't be enforced is found in the grammar that has thoughts before the form, and told by the client's field.
    beyond = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(?<=x)a"}}}
    refused = place.ask("Hm.</think>", response_format=beyond)
    assert (refused.status, refused.error["param"]) == (400, "response_format.json_schema.schema")
    assert "structured_outputs" not in refused.error["message"]
    refused = place.ask("b", tools=TOOLS, structured_outputs={"choice": ["a", "b"]})
    assert (refused.status, refused.error["param"]) == (400, "tools")
    assert "beside tools it must be one of JSON" in refused.error["message"]


def test_what_cant_be_enforced(places: dict[str, Place]) -> None:
    """The tool is named; without strict or a demand its schema is the model's to read."""

    def with_city(schema: Any) -> list[Any]:
        parameters = {"type": "object", "properties": {"city": schema}}
        return [CLOCK, {"type": "function", "function": {"name": "f", "parameters": parameters}}]

    path = "tools[1].function.parameters"
    for schema, param in (
        ({"not": {}}, f"{path}.properties.city.not"),
        ({"type": "strange"}, f"{path}.properties.city.type"),
        ({"$ref": "#/nowhere"}, f"{path}.properties.city.$ref"),
        ({"type": "string", "pattern": "(?<=x)a"}, f"{path}.properties.city.pattern"),
    ):
        reply = places["hermes"].ask("Hello.", tools=with_city(schema), tool_choice="required")
        assert (reply.status, reply.error["param"]) == (400, param)
        assert path in reply.error["message"]
        assert places["hermes"].ask("Hello.", tools=with_city(schema)).status == 200
    for fields, param in (({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"), ({"tools": STRICT}, "tools")):
        reply = places["tool_code"].ask("Hello.", **fields)
        assert (reply.status, reply.error["param"]) == (400, param)
        assert "the format tool_code" in reply.error["message"]


def endless() -> dict[str, Any]:
    """A schema whose options refer to themselves by three properties each: comparing all of it would never end."""
    defs = {
        name: {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/{name}"} for key in "xyz"},
            "required": ["x", "y", "z"],
        }
        for name in "AB"
    }
    return {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": defs}


@pytest.mark.parametrize("by", ["tools", "response_format"])
def test_schemas_that_refer_to_themselves_are_answered(places: dict[str, Place], by: str) -> None:
    place = places["hermes"]
    tool = {"type": "function", "function": {"name": "f", "parameters": endless()}}
    if by == "tools":
        reply = place.ask("Hello.", tools=[tool], tool_choice="required")
        path = "tools[0].function.parameters"
    else:
        described = {"name": "answer", "schema": endless()}
        reply = place.ask("Hello.", response_format={"type": "json_schema", "json_schema": described})
        path = "response_format.json_schema.schema"
    assert reply.status == 400
    assert reply.error["param"].startswith(path)


def test_while_schemas_are_checked_others_are_served(places: dict[str, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    place, go, begun = places["hermes"], threading.Event(), threading.Semaphore(0)

    def slow(schema: dict[str, Any], path: str) -> CheckedSchema:
        begun.release()
        assert go.wait(SECONDS)
        return CheckedSchema(schema, path)

    monkeypatch.setattr(forms, "CheckedSchema", slow)
    grammars = place.model.llm.requests.grammars
    monkeypatch.setattr(grammars, "time_limit", SECONDS)
    fields = {"tools": TOOLS, "tool_choice": ONE, "max_tokens": 50}
    with ThreadPoolExecutor(CHECKERS) as pool:
        try:
            asked = [pool.submit(place.server.chat, **fields) for _ in range(CHECKERS)]
            for _ in range(CHECKERS):
                assert begun.acquire(timeout=SECONDS)
            assert place.server.get("/health").status == 200
            monkeypatch.setattr(grammars, "time_limit", 0.1)
            assert place.server.chat(**fields).status == 429
        finally:
            monkeypatch.setattr(grammars, "time_limit", SECONDS)
            go.set()
        assert [each.result().status for each in asked] == [200] * CHECKERS
        go.clear()
        monkeypatch.setattr(grammars, "time_limit", 0.1)
        try:
            late = place.server.chat(**fields)
        finally:
            go.set()
    assert (late.status, late.error["param"]) == (400, "tools")
    assert "takes more than 0.1 s to check" in late.error["message"]


def test_a_demanded_call_that_is_cut(places: dict[str, Place]) -> None:
    (choice,) = places["hermes"].ask("", tools=TOOLS, tool_choice=ONE, max_tokens=50).json["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith("{")
