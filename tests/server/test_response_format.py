"""Answers of a form over HTTP: by OpenAI's field and vLLM's; what is refused, by which words; nobody else waits."""

import json
import re
import threading
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from cutaway import LLM, SamplingParams
from cutaway.grammar import grammars as grammars_module
from cutaway.grammar.state import GrammarState
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.http_server import RunningServer
from support.long import LONG
from support.patience import SECONDS

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome", "Oslo"]},
        "mood": {"type": "string", "pattern": "^[a-z]{3,8}$"},
        "tags": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2},
    },
    "required": ["city", "mood", "tags"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "Name a city."}]
ASKED: dict[str, Any] = {"messages": MESSAGES, "temperature": 1.5, "seed": 3, "max_tokens": 200}


def by_schema(schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    """OpenAI's field."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}}


@pytest.fixture(scope="module")
def want(llm: LLM) -> list[str]:
    """The engine's own answers."""
    params = SamplingParams(temperature=1.5, seed=3, max_tokens=200, structured_outputs={"json": SCHEMA})
    return [each.text for each in llm.chat(MESSAGES, params)[0].outputs]


@pytest.mark.parametrize(
    "field",
    [
        by_schema(),
        by_schema(strict=True, description="An answer."),
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        {"guided_json": SCHEMA},
    ],
    ids=lambda field: str(field)[:40],
)
def test_a_schema_by_any_of_its_names(server: RunningServer, want: list[str], field: dict[str, Any]) -> None:
    reply = server.chat(**ASKED, **field)
    assert [each["message"]["content"] for each in reply.json["choices"]] == want
    for text in want:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert {each["finish_reason"] for each in reply.json["choices"]} == {"stop"}


def test_streamed_it_is_the_same(server: RunningServer, want: list[str]) -> None:
    (whole,) = want
    *chunks, _ = server.chat(**ASKED, **by_schema(), stream=True).events
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in chunks) == whole
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_json_object_needs_no_word_of_json_in_the_prompt(server: RunningServer) -> None:
    found = []
    for seed in range(5 if LONG else 2):
        asked = {**ASKED, "seed": seed, "temperature": 1.0, "max_tokens": 60}
        choice = server.chat(**asked, response_format={"type": "json_object"}).json["choices"][0]
        assert choice["message"]["content"].startswith("{")
        if choice["finish_reason"] == "stop":
            found.append(json.loads(choice["message"]["content"]))
    assert found
    assert all(isinstance(each, dict) for each in found)


@pytest.mark.parametrize(
    ("field", "pattern"),
    [
        ({"structured_outputs": {"regex": "[0-9]{3}-[0-9]{2}"}}, "[0-9]{3}-[0-9]{2}"),
        ({"guided_regex": "[0-9]{3}-[0-9]{2}"}, "[0-9]{3}-[0-9]{2}"),
        ({"structured_outputs": {"choice": ["red", "green"]}}, "red|green"),
        ({"guided_choice": ["red", "green"]}, "red|green"),
        ({"structured_outputs": {"grammar": 'start: "x" /[0-9]{1,3}/ "."'}}, r"x[0-9]{1,3}\."),
        ({"guided_grammar": 'start: "x" /[0-9]{1,4}/ "."'}, r"x[0-9]{1,4}\."),
        ({"response_format": {"type": "text"}, "guided_choice": ["red"]}, "red"),
    ],
    ids=str,
)
def test_other_forms(server: RunningServer, field: dict[str, Any], pattern: str) -> None:
    chat = server.chat(**ASKED, **field).json["choices"][0]
    completed = server.complete(prompt="A colour:", temperature=1.0, seed=1, max_tokens=60, **field).json["choices"][0]
    for text, finish in (
        (chat["message"]["content"], chat["finish_reason"]),
        (completed["text"], completed["finish_reason"]),
    ):
        assert finish == "stop"
        assert re.fullmatch(pattern, text)


INNER = "response_format.json_schema.schema"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "jsonschema"}}, "response_format.type", "must be text, json_object or json_schema"),
    ({"response_format": {}}, "response_format.type", "must be text"),
    ({"response_format": "json"}, "response_format", "valid dictionary"),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema", "it has type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be an object with name and"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, INNER, "must be a JSON schema"),
    (by_schema(strict="yes"), "response_format.json_schema.strict", "true or false"),
    (by_schema(name=5), "response_format.json_schema.name", "a text"),
    (by_schema(extra=5), "response_format.json_schema.extra", "it has name and"),
    (
        by_schema({"properties": {"tags": {"uniqueItems": True}}}),
        f"{INNER}.properties.tags.uniqueItems",
        "can't be enforced",
    ),
    (by_schema({"properties": {"a": {"$ref": "#/$defs/b"}}}), f"{INNER}.properties.a.$ref", "that is there"),
    (by_schema({"not": {"type": "string"}}), f"{INNER}.not", "can't be enforced"),
    (by_schema({"properties": {"a": {"pattern": "(?<=x)+"}}}), f"{INNER}.properties.a.pattern", "look-around"),
    (by_schema({"minLenght": 5}), f"{INNER}.minLenght", "no keyword"),
    ({"guided_json": {"not": {}}}, "guided_json.not", "guided_json.not is {}"),
    ({"guided_regex": "("}, "guided_regex", "guided_regex can't be enforced"),
    ({"guided_regex": 5}, "guided_regex", "a text"),
    ({"guided_choice": []}, "guided_choice", "a list of 1 to"),
    ({"guided_grammar": "start: a"}, "guided_grammar", "unknown name"),
    ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json.not", "can't be enforced"),
    ({"structured_outputs": {}}, "structured_outputs", "exactly one of"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "exactly one of"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "exactly one of"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "an answer has one form"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "an answer has one form"),
]


@pytest.mark.parametrize(("fields", "param", "words"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_what_is_refused(server: RunningServer, fields: dict[str, Any], param: str, words: str) -> None:
    for reply in (server.chat(**fields), server.complete(**{"stream": True, **fields})):
        assert (reply.status, reply.error["param"]) == (400, param)
        assert words in reply.error["message"]
        assert "structured_outputs" not in reply.error["message"] or "structured_outputs" in fields


def test_the_form_in_effect_is_echoed(server: RunningServer) -> None:
    reply = server.chat(**ASKED, guided_choice=["red", "green"], return_parameters=True)
    assert reply.json["cutaway"]["parameters"]["structured_outputs"]["choice"] == ["red", "green"]


def test_while_a_form_is_compiled_others_are_served(
    server: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten are in the works and block; the event loop and the threads that encode prompts are free."""
    go, original = threading.Event(), grammars_module.compile_grammar

    def slow(form: Any, vocabulary: Any) -> Any:
        assert go.wait(SECONDS)
        return original(form, vocabulary)

    monkeypatch.setattr(grammars_module, "compile_grammar", slow)
    monkeypatch.setattr(llm.requests.grammars, "time_limit", SECONDS)
    statuses: list[int] = []

    def ask(number: int) -> None:
        statuses.append(server.chat(**ASKED, guided_choice=[f"choice {number}"]).status)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for each in threads:
        each.start()
    try:
        for _ in range(3):
            assert server.chat(messages=MESSAGES, max_tokens=2).status == 200
            assert server.get("/health").status == 200
        assert statuses == []
    finally:
        go.set()
        for each in threads:
            each.join(SECONDS)
    assert statuses == [200] * 10


def test_a_form_that_takes_too_long_is_a_400(server: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(grammars_module, "compile_grammar", lambda form, vocabulary: go.wait(SECONDS))
    monkeypatch.setattr(llm.requests.grammars, "time_limit", 0.1)
    try:
        reply = server.chat(**ASKED, **by_schema({"type": "integer", "title": "too slow"}))
        assert (reply.status, reply.error["param"]) == (400, INNER)
        assert "takes more than 0.1 s to compile" in reply.error["message"]
    finally:
        go.set()


def test_who_waits_behind_slow_forms_is_told_to_come_again(
    server: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429, and not that the client's own form were slow."""
    go, grammars = threading.Event(), llm.requests.grammars
    monkeypatch.setattr(grammars_module, "compile_grammar", lambda form, vocabulary: go.wait(SECONDS) and form)
    monkeypatch.setattr(grammars, "time_limit", 0.2)
    slow = [
        grammars.submit(StructuredOutputsParams(regex=f"slow {number}")) for number in range(grammars_module.THREADS)
    ]
    try:
        for each in slow:
            each.begun.result(SECONDS)
        for stream in (False, True):
            reply = server.chat(**ASKED, **by_schema({"type": "integer", "title": "quick"}), stream=stream)
            assert (reply.status, reply.error["code"]) == (429, "queue_full")
            assert reply.headers["retry-after"] == "1"
            assert "forms of other requests" in reply.error["message"]
    finally:
        go.set()


@pytest.mark.parametrize(
    ("path", "field", "param"),
    [
        ("/v1/chat/completions", by_schema(), INNER),
        ("/v1/chat/completions", {"response_format": {"type": "json_object"}}, "response_format"),
        ("/v1/completions", {"guided_regex": "[ab]{9}"}, "guided_regex"),
        ("/v1/completions", {"structured_outputs": {"regex": "[ab]{9}"}}, "structured_outputs"),
        ("/v1/responses", {"text": {"format": {"type": "json_object"}}}, "text.format"),
        ("/v1/messages", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, None),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_failure_amid_the_answer_names_the_clients_field(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str, field: dict[str, Any], param: str | None
) -> None:
    """A form may become too complex for its limits while the answer grows."""
    monkeypatch.setattr(GrammarState, "finished_by", lambda state, token_id: fail(state))
    prompt = {
        "/v1/completions": {"prompt": "A"},
        "/v1/responses": {"input": "A", "max_output_tokens": 20},
        "/v1/messages": {"messages": MESSAGES, "max_tokens": 20},
    }.get(path, {"messages": MESSAGES})
    whole = server.post(path, {**prompt, **field})
    assert whole.status == 400
    message = whole.json["error"]["message"]
    assert whole.json["error"].get("param") == param
    named = param or "output_config.format.schema"
    assert message.startswith(named)
    assert "too complex to go on" in message
    assert "structured_outputs" not in message or "structured_outputs" in field
    assert message in server.post(path, {**prompt, **field, "stream": True}).body.decode()


def fail(state: GrammarState) -> bool:
    raise state._error()


# -- OpenAI's client, with models of pydantic


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    loud: bool


class Household(BaseModel):
    """Whoever lives there."""

    street: Literal["Elm Street", "Rue de l'Été", "大街"]
    number: int = Field(ge=1, le=200)
    floor: int | None
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(max_length=2)


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as made:
        yield made


@pytest.mark.parametrize("seed", range(5 if LONG else 1))
def test_parse_by_openai_s_client(client: openai.OpenAI, seed: int) -> None:
    found = client.chat.completions.parse(
        model="smollm2",
        messages=[{"role": "user", "content": "Describe a household with its pets."}],
        response_format=Household,
        temperature=1.2,
        seed=seed,
        max_tokens=200,
    )
    parsed = found.choices[0].message.parsed
    assert isinstance(parsed, Household)
    assert Household.model_validate_json(found.choices[0].message.content or "") == parsed


def test_streamed_parse_by_openai_s_client(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="smollm2",
        messages=[{"role": "user", "content": "Describe a household with its pets."}],
        response_format=Household,
        temperature=1.2,
        seed=7,
        max_tokens=200,
    ) as stream:
        found = stream.get_final_completion()
    assert isinstance(found.choices[0].message.parsed, Household)
