"""Answers told apart: the formats of calls, reasoning, and that neither cuts nor damage lose a character."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.tokenizer.answers.events import CallArguments, CallBegin, CallEnd, Content, Event, Events, Reasoning
from cutaway.tokenizer.answers.formats import AnswerFormat
from cutaway.tokenizer.answers.parser import PARSERS, AnswerParser
from cutaway.tokenizer.answers.reasoning import REASONING

TOOLS = ("f", "g-1", "sum")
CITY = '{"city": "Zürich", "a": [1, {"b": "}\\"{"}]}'

Read = tuple[str, str, list[tuple[str, str, bool]]]  # reasoning, content, calls: name, arguments, whole or not


def read(events: Sequence[Event]) -> Read:
    """What events say. Their order is checked: a call's arguments come before anything else."""
    reasoning, content = "", ""
    calls: list[tuple[str, str, bool]] = []
    for event in events:
        if isinstance(event, Reasoning):
            assert not content
            assert not calls
            reasoning += event.text
        elif isinstance(event, Content):
            content += event.text
        elif isinstance(event, CallBegin):
            assert event.call == len(calls)
            calls.append((event.name, "", False))
        else:
            assert event.call == len(calls) - 1
            name, arguments, ended = calls[-1]
            assert not ended
            more = event.text if isinstance(event, CallArguments) else ""
            calls[-1] = (name, arguments + more, isinstance(event, CallEnd))
        if isinstance(event, Reasoning | Content | CallArguments):
            assert event.text
    return reasoning, content, calls


def parsed(
    text: str, form: str | None = "hermes", cuts: Sequence[int] = (), thoughts: bool = False, **options: Any
) -> Read:
    """A text in pieces, cut at these places."""
    markers = REASONING[0] if thoughts else None
    parser = AnswerParser(AnswerFormat(form, markers), **{"tools": TOOLS, **options})
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    events = [event for start, end in pairwise(places) for event in parser.feed(text[start:end])]
    return read(events + parser.finish())


def call(name: str = "f", arguments: str = CITY) -> tuple[str, str, bool]:
    return name, arguments, True


HERMES = '<tool_call>\n{"name": "f", "arguments": ' + CITY + "}\n</tool_call>"
JSON = '{"name": "f", "parameters": ' + CITY + "}"
LONE = f"<tool_call>{JSON}"

CASES: list[tuple[str, str, str, list[tuple[str, str, bool]]]] = [
    # form, text, content, calls
    ("hermes", HERMES, "", [call()]),
    ("hermes", f"Well, {HERMES}", "Well, ", [call()]),
    ("hermes", f"\n\n{HERMES}\n{HERMES}\n", "", [call(), call()]),
    ("hermes", f"{HERMES}\nDone. {HERMES} Really.", "\nDone.  Really.", [call(), call()]),
    ("hermes", '<tool_call>{"arguments": {"n1": 2}, "name": "sum"}</tool_call>', "", [call("sum", '{"n1": 2}')]),
    ("hermes", '<tool_call>{"id": [1, "]"], "name": "f"}</tool_call>', "", [call("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [call("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [call("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"arguments": {}, "name": "\\u0066", "x": 1}</tool_call>', "", [call("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>', "",
     [call("f", '{"a": "</tool_call>"}')]),
    ("hermes", LONE, "", [call()]),  # an end that isn't there
    ("hermes", LONE[:-1], "", [call()]),
    ("hermes", LONE[:-1] + "\n</tool_call>", "", [call()]),
    ("hermes", LONE + " {}", " {}", [call()]),
    ("hermes", LONE[:-1] + "] x", "] x", [call()]),
    ("hermes", LONE[:-1] + ', "x" oops', ', "x" oops', [call()]),
    ("hermes", LONE[:-9], "", [("f", CITY[:-8], False)]),
    ("hermes", JSON, "", [call()]),  # as Qwen2.5-Coder writes
    ("hermes", f"```json\n{JSON}\n```\n", "", [call()]),
    ("hermes", f"{JSON}\n{HERMES}", "", [call(), call()]),
    ("hermes", f"<tool_call><tool_call>{JSON}</tool_call>", "<tool_call>", [call()]),
    ("hermes", f'<tool_call>{{"name": "f", {HERMES}', '<tool_call>{"name": "f", ', [call()]),
    ("json", JSON, "", [call()]),
    ("json", f"  <|python_tag|>{JSON}", "", [call()]),
    ("json", f"{JSON}; {JSON}\n{JSON}", "", [call(), call(), call()]),
    ("json", f"[{JSON}, {JSON}]", "", [call(), call()]),
    ("json", f"```json\n{JSON}\n```", "", [call()]),
    ("json", f"```\n{JSON}```\nThere.", "\nThere.", [call()]),
    ("json", f"{JSON} and more", " and more", [call()]),
    ("json", '{"type": "function", "name": "f", "parameters": {}}', "", [call("f", "{}")]),
    ("json", f'{JSON}; {{"name": "h", "parameters": {{}}}}', '; {"name": "h", "parameters": {}}', [call()]),
    ("mistral", f"[TOOL_CALLS] [{JSON}, {JSON}] ", "", [call(), call()]),
    ("mistral", f"[TOOL_CALLS]f[ARGS]{CITY}", "", [call()]),
    ("mistral", f"Hm.[TOOL_CALLS]f[CALL_ID]abc123456[ARGS]{CITY}[TOOL_CALLS]g-1[ARGS]{{}}", "Hm.",
     [call(), call("g-1", "{}")]),
    ("mistral", f"[TOOL_CALLS]f{CITY}", "", [call()]),
    ("mistral", f"[TOOL_CALLS][{JSON}", "", [call()]),
    ("tool_code", '```tool_code\nf(city="Zürich", n=-1.5, ok=True, z=None)\n```', "",
     [call("f", '{"city": "Zürich", "n": -1.5, "ok": true, "z": null}')]),
    ("tool_code", "Well.\n```tool_code\nprint(f(a=[1, (2,), {'b': 'c\\'\\n'}],))\n```\n", "Well.\n",
     [call("f", '{"a": [1, [2], {"b": "c\'\\n"}]}')]),
    ("tool_code", "```tool_code\n[f(), sum(a=1)]\nf()\n```", "", [call("f", "{}"), call("sum", '{"a": 1}'),
     call("f", "{}")]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "content", "calls"), CASES, ids=[str(index) for index in range(len(CASES))])
def test_calls(form: str, text: str, content: str, calls: list[Any]) -> None:
    """Whole, character by character, and cut in two at every place."""
    want = ("", content, calls)
    assert parsed(text, form) == want
    assert parsed(text, form, range(len(text))) == want
    for cut in range(len(text)):
        assert parsed(text, form, [cut]) == want
    for _, arguments, whole in calls:
        assert not whole or isinstance(json.loads(arguments), dict)


NO_CALLS = [
    ("hermes", "The marker <tool_call> is written before a call, </tool_call> behind it."),
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": "x"}</tool_call>'),
    ("hermes", '<tool_call>{"arguments": 5, "name": "f"}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f"'),
    ("hermes", '<tool_call>{"name": "f", "arguments":'),
    ("hermes", '<tool_call>{"arguments": {"a": "'),
    ("hermes", "<tool_call>{name: f}</tool_call>"),
    ("hermes", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"),
    ("hermes", "  <tool_cal"),
    ("hermes", " \n "),
    ("hermes", '{"name": "Bob", "arguments": {}}'),
    ("hermes", '{"name": "f"}'),
    ("hermes", '{"people": [{"name": "f", "arguments": {}}]}'),
    ("hermes", f"A call: {JSON}"),
    ("json", f"A call: {JSON}"),
    ("json", "<|python_tag|>brave_search.call(query=\"f\")"),
    ("json", "[1, 2]"),
    ("json", "```python\nprint(1)\n```"),
    ("json", "```json\n[]\n```\n"),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", "[TOOL_CALLS]h[ARGS]{}"),
    ("mistral", "[TOOL_CALLS]f[ARGS][1]"),
    ("mistral", "[TOOL_CALLS] [5]"),
    ("mistral", "[TOOL_CALLS]" + "f" * 70 + "[ARGS]{}"),
    ("tool_code", "```tool_code\nf(1)\n```"),
    ("tool_code", "```tool_code\nf(a=1, a=2)\n```"),
    ("tool_code", "```tool_code\nf(a=g())\n```"),
    ("tool_code", "```tool_code\nf(a=1e999)\n```"),
    ("tool_code", "```tool_code\nf(a='\\ud83d')\n```"),
    ("tool_code", "```tool_code\nf(a=" + "[" * 5000 + ")\n```"),
    ("tool_code", "```tool_code\nh(a=1)\n```"),
    ("tool_code", "```tool_code\nf(a=1"),
    ("tool_code", "```python\nf(a=1)\n```"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text"), NO_CALLS, ids=[str(index) for index in range(len(NO_CALLS))])
def test_what_is_no_call_is_content(form: str, text: str) -> None:
    assert parsed(text, form) == ("", text, [])
    assert parsed(text, form, range(len(text))) == ("", text, [])


@pytest.mark.parametrize("form", [*PARSERS, None])
@pytest.mark.parametrize("text", [each[1] for each in CASES])
def test_without_tools_nothing_is_a_call(form: str | None, text: str) -> None:
    assert parsed(text, form, tools=()) == ("", text, [])


def test_no_more_calls_than_wanted() -> None:
    assert parsed(f"{HERMES} {HERMES}", most_calls=1) == ("", f" {HERMES}", [call()])
    assert parsed(f"[TOOL_CALLS][{JSON}, {JSON}]", "mistral", most_calls=1) == ("", f", {JSON}]", [call()])
    two = "```tool_code\n[f(), f()]\n```"
    assert parsed(two, "tool_code", most_calls=1) == ("", two, [])


TWICE = [
    ("hermes", f"Well, {HERMES}\n{HERMES}", "Well, "),
    ("hermes", f"```json\n{JSON}\n```", ""),
    ("json", f"{JSON}; {JSON}", ""),
    ("json", f"[{JSON}, {JSON}]", ""),
    ("json", f"```json\n[{JSON}]\n```", ""),
    ("mistral", f"Well, [TOOL_CALLS] [{JSON}, {JSON}]", "Well, "),
    ("mistral", f"[TOOL_CALLS]f[ARGS]{CITY}[TOOL_CALLS]f[CALL_ID]abc[ARGS]{CITY}", ""),
]
OPENERS = ("<tool_call>", "[TOOL_CALLS]", "{", "; {", ", {")


@pytest.mark.parametrize(("form", "text", "content"), TWICE)
def test_an_answer_that_is_cut_anywhere(form: str, text: str, content: str) -> None:
    """By its last token or a stop text. Calls so far are those of the whole; what has begun of the next one is shown as
    it was written; nothing is lost; and no part of what closes a call is shown.
    """
    _, whole_content, whole = parsed(text, form)
    assert whole_content == content
    for end in range(len(text)):
        cut = text[:end]
        _, shown, calls = parsed(cut, form)
        assert parsed(cut, form, range(end)) == ("", shown, calls)
        if not calls:
            assert shown == cut
            continue
        assert calls[:-1] == whole[: len(calls) - 1]
        name, arguments, ended = calls[-1]
        assert (name, ended) == (whole[len(calls) - 1][0], arguments == whole[len(calls) - 1][1])
        assert whole[len(calls) - 1][1].startswith(arguments)
        rest = shown.removeprefix(content)
        assert cut.endswith(rest)
        begun = rest.lstrip()
        assert not begun or any(begun.startswith(each) or each.startswith(begun) for each in OPENERS), rest
        if not begun:  # then all that was left is what belongs to the format
            assert not set(cut.rpartition(arguments)[2]) - set("</tool_call>}],;` \n")


def test_text_comes_as_soon_as_it_is_certain() -> None:
    """No more is held back than may be a marker; of arguments, nothing."""
    parser = AnswerParser(AnswerFormat("hermes"), TOOLS)
    assert parser.feed("a <") == [Content("a ")]
    assert parser.feed("tool") == []
    assert parser.feed("s> b\n") == [Content("<tools> b\n")]
    assert parser.feed('<tool_call>{"name": "f", "arguments": {"a') == [CallBegin(0, "f"), CallArguments(0, '{"a')]
    assert parser.feed('": "x') == [CallArguments(0, '": "x')]
    assert parser.feed('"}') == [CallArguments(0, '"}'), CallEnd(0)]
    assert parser.feed("}</tool_call>") == []
    assert parser.finish() == []
    assert parser.finish() == []
    other = AnswerParser(AnswerFormat("json"), TOOLS)
    assert other.feed('{"people": [') == [Content('{"people": [')]


THOUGHTS: list[tuple[str, bool, str, str]] = [
    # text, whether the prompt has the first marker, reasoning, content
    ("<think>\nHm.\n\nWell.\n</think>\n\nYes.\n", False, "Hm.\n\nWell.", "Yes.\n"),
    ("Hm.\n</think>\n\n  Yes.", True, "Hm.", "  Yes."),
    ("\n<think></think> Yes.", False, "", " Yes."),
    ("<think>\n\n</think>\n\nYes.", False, "", "Yes."),
    ("No thought: <think>x</think>", False, "", "No thought: <think>x</think>"),
    ("<thin", False, "", "<thin"),
    ("\n  Yes.", False, "", "\n  Yes."),
    ("<think>Hm. ", False, "Hm. ", ""),
    ("Hm.", True, "Hm.", ""),
    ("Hm.</thin k></think>Yes.</think>", True, "Hm.</thin k>", "Yes.</think>"),
    ("", True, "", ""),
]


@pytest.mark.parametrize(("text", "within", "reasoning", "content"), THOUGHTS)
def test_reasoning(text: str, within: bool, reasoning: str, content: str) -> None:
    want = (reasoning, content, [])
    for cuts in ((), range(len(text))):
        assert parsed(text, None, cuts, thoughts=True, within_reasoning=within) == want
    assert parsed(text, None)[1] == text, "of a model that doesn't reason"


def test_calls_behind_reasoning_alone() -> None:
    text = f"<think>I could write {HERMES}\n</think>\n\nSo: {HERMES}"
    assert parsed(text, thoughts=True) == (f"I could write {HERMES}", "So: ", [call()])


PIECES = st.lists(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "<tool", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<think>", "</think>"),
            *("```tool_code\n", "```", "<|python_tag|>", '{"name": "f"', ', "arguments": ', '{"a": 1}', "}", "{"),
            *('"name"', ": ", '"sum"', '"', "\\", "[", "]", ",", ";", "f", "(", ")", "=", "print(", "1", " ", "\n"),
            *(HERMES, JSON, "ü", "\ud83d"),
        ]
    )
).map("".join)


@given(PIECES, st.lists(st.integers(0, 200)), st.sampled_from([*PARSERS, None]), st.booleans(), st.booleans())
def test_any_text_cut_anywhere(text: str, cuts: list[int], form: str | None, thoughts: bool, within: bool) -> None:
    """Never an error; the cuts change nothing; a text without calls and thoughts is whole."""
    options: dict[str, Any] = {"thoughts": thoughts, "within_reasoning": within}
    whole = parsed(text, form, **options)
    assert parsed(text, form, cuts, **options) == whole
    reasoning, content, calls = whole
    if not calls and not thoughts:
        assert content == text
    kept = "".join([reasoning, content, *(arguments for _, arguments, _ in calls)])
    assert len(kept) <= len(text) + 100 or any(call[1] for call in calls)


@given(st.text(), st.sampled_from([*PARSERS, None]))
def test_ordinary_text_is_content(text: str, form: str | None) -> None:
    assert parsed(text, form) == ("", text, [])


@given(st.data(), st.sampled_from(CASES))
def test_damaged_calls_never_raise(data: st.DataObject, case: tuple[str, str, str, list[Any]]) -> None:
    form, text, _, _ = case
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    damaged = text[:start] + data.draw(st.sampled_from(["", '"', "{", "}", "\\", "<", "é"])) + text[end:]
    _, content, calls = parsed(damaged, form)
    assert calls or content == damaged


UNITS = ("<tool_call>", '<tool_call>{"x":"', "[TOOL_CALLS][", "```tool_code\n", '{"name": "f", ', "[{", "`")


def test_long_answers_take_time_in_proportion() -> None:
    """Characters that are read again are few, whatever the text: counted, not timed."""
    for form in PARSERS:
        for unit in (
            "<tool_call>",
            '<tool_call>{"x":"',
            "[TOOL_CALLS][",
            "```tool_code\n",
            '{"name": "f", ',
            "[{",
            "`",
        ):
            counts = [_reads(unit * number, form) for number in (50, 100)]
            assert counts[1] < 2.2 * counts[0], (form, unit)


def _reads(text: str, form: str) -> int:
    """How many characters a parser takes, those that were put back counted again."""
    from cutaway.tokenizer.answers.characters import Characters

    count = 0

    class Counting(Characters):
        def next(self) -> Any:
            nonlocal count
            count += 1
            return (yield from super().next())

    run = PARSERS[form](Counting(), Events(frozenset(TOOLS)))
    next(run)
    try:
        for character in text:
            run.send(character)
        while True:
            run.send("")
    except StopIteration:
        return count
