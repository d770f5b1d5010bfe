"""Compiling: once for each form, within a time limit, whatever the form; errors are told, and nothing blocks others."""

import json
import re
import resource
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from walks import after, random_answer

from cutaway.errors import InvalidRequestError, QueueFullError
from cutaway.grammar import grammars as module
from cutaway.grammar.grammars import MOST_KEPT, MOST_KEPT_BYTES, MOST_WAITING, THREADS, Grammars, key_of
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.small_vocabulary import JSON_BYTES, SmallVocabulary

VOCABULARY: Any = JSON_BYTES


def choices(*texts: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(choice=texts)


@pytest.mark.parametrize(
    "form",
    [
        {"regex": "(a{1,1000}){1,1000}"},
        {"regex": "((a{0,100}){0,100}){0,100}"},
        {"regex": "(.*a){20}"},
        {"regex": ".*a.{30}"},
        {"regex": "^(([a-z])+.)+[A-Z]([a-z])+$"},
        {"regex": "(" * 10_000 + "a" + ")" * 10_000},
        {"regex": "(?:a?){300}a{300}"},
        {"regex": "(\\w{1,300}\\s){1,300}"},
        {"regex": "a" * 20_000},
        {"grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000},
        {"grammar": 'start: ("a"){1,1000000000}'},
        {"grammar": "".join(f"r{n}: r{n + 1} r{n + 1}\n" for n in range(2000)) + 'r2000: "a"\nstart: r0'},
        {"json": {"enum": [f"value {n}" for n in range(7000)]}},
        {"json": {"enum": list(range(15_000))}},
        {"json": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)}}},
        {"json": {"type": "array", "minItems": 2**31 - 1, "items": {"type": "array", "maxItems": 2**31 - 1}}},
        {"json": {"type": "string", "minLength": 2**31 - 1}},
        {"json": {"type": "string", "pattern": "(.*a){12}.{20}", "maxLength": 10_000}},
        {
            "json": {
                "allOf": [
                    {"anyOf": [{"type": "object", "required": [f"k{i}_{j}"]} for j in range(2)]} for i in range(20)
                ]
            }
        },
        {"choice": [f"{n} of many" for n in range(4096)]},
    ],
    ids=lambda form: str(form)[:40],
)
def test_whatever_the_form_it_is_compiled_or_refused_and_steps_are_short(form: dict[str, Any]) -> None:
    """The watchdog is generous: what matters is that these end at all, and that nothing is killed by its stack."""
    grammars = Grammars(VOCABULARY, time_limit=60)
    try:
        random_answer(grammars.get(StructuredOutputsParams(**form)), JSON_BYTES, 1, wild=10, most=15)
    except InvalidRequestError as error:  # when it was compiled, or, of a step, at its limit
        fields = {error.field}
    else:
        fields = set()
    assert all((each or "").startswith("structured_outputs") for each in fields)


def test_a_form_is_compiled_once_while_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[StructuredOutputsParams] = []
    original = module.compile_grammar

    def count(form: StructuredOutputsParams, vocabulary: Any) -> Any:
        compiled.append(form)
        return original(form, vocabulary)

    monkeypatch.setattr(module, "compile_grammar", count)
    grammars = Grammars(VOCABULARY)
    first = grammars.get(choices("a", "b"))
    assert grammars.get(choices("a", "b")) is first
    assert grammars.get(choices("b", "a")) is not first
    for n in range(MOST_KEPT - 2):
        grammars.get(choices(f"number {n}"))
        grammars.get(choices("a", "b"))
    assert grammars.get(choices("a", "b")) is first
    assert len(compiled) == MOST_KEPT
    grammars.get(choices("one more"))  # the oldest is forgotten: b, a
    assert grammars.get(choices("a", "b")) is first
    grammars.get(choices("b", "a"))
    assert len(compiled) == MOST_KEPT + 2


def test_forms_are_told_apart() -> None:
    forms = [
        choices("a", "b"),
        choices("ab"),
        choices("a1 b"),
        StructuredOutputsParams(regex="ab"),
        StructuredOutputsParams(grammar="ab"),
        StructuredOutputsParams(json={"type": "string"}),
        StructuredOutputsParams(json={"type": "null"}),
        StructuredOutputsParams(json_object=True),
    ]
    assert len({key_of(form) for form in forms}) == len(forms)
    assert key_of(StructuredOutputsParams(json={"type": "null"})) == key_of(
        StructuredOutputsParams(json='{"type": "null"}')
    )


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory is read from Linux's /proc")
def test_what_repeats_itself_takes_little_memory() -> None:
    """Grammars are kept, 64 of them: a short text may not make one of them large."""
    grammars, before = Grammars(VOCABULARY, time_limit=60), resident()
    kept = [
        grammars.get(StructuredOutputsParams(**{kind: text.format(900_000 + n)}))
        for n in range(4)
        for kind, text in (("grammar", "start: /a{{{}}}/"), ("regex", "(ab){{{}}}"))
    ]
    assert resident() - before < len(kept) * (32 << 20)


class Slow:
    """A compiler that waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun: list[StructuredOutputsParams] = []

    def __call__(self, form: StructuredOutputsParams, vocabulary: Any) -> Any:
        self.begun.append(form)
        if form.regex is not None:
            assert self.go.wait(60)
        return form


def test_what_takes_too_long_is_given_up_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(module, "compile_grammar", slow)
    grammars = Grammars(VOCABULARY, time_limit=0.2)
    with pytest.raises(InvalidRequestError, match=r"structured_outputs\.regex takes more than 0\.2 s") as error:
        grammars.get(StructuredOutputsParams(regex="slow"))
    assert error.value.field == "structured_outputs.regex"
    patient = Grammars(VOCABULARY, time_limit=60)
    assert THREADS > 1
    waiting = patient.submit(StructuredOutputsParams(regex="slow"))
    patient.get(choices("quick"))
    same = patient.submit(StructuredOutputsParams(regex="slow"))
    assert same is waiting
    assert not waiting.grammar.cancel()
    slow.go.set()
    assert waiting.grammar.result(60) is not None


def test_who_gets_no_turn_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said to be slow itself: its own time begins with its turn, which may come later."""
    slow = Slow()
    monkeypatch.setattr(module, "compile_grammar", slow)
    grammars = Grammars(VOCABULARY, time_limit=0.5)
    running = [grammars.submit(StructuredOutputsParams(regex=f"slow {n}")) for n in range(THREADS)]
    for each in running:
        each.begun.result(60)
    with pytest.raises(QueueFullError, match=r"other requests have been compiled for 0\.5 s.*Try again") as error:
        grammars.get(choices("quick"))
    assert error.value.retry_after == 0.5
    assert choices("quick") not in slow.begun
    slow.go.set()
    for each in running:
        each.grammar.result(60)
    assert grammars.submit(choices("quick")).grammar.result(60) is not None  # it has kept its place
    assert slow.begun.count(choices("quick")) == 1


def test_the_time_limit_begins_with_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(module, "compile_grammar", slow)
    grammars = Grammars(VOCABULARY)
    running = [grammars.submit(StructuredOutputsParams(regex=f"slow {n}")) for n in range(THREADS)]
    for each in running:
        each.begun.result(60)
    waiting = grammars.submit(StructuredOutputsParams(regex="slow, too"))
    assert not waiting.begun.done()
    slow.go.set()
    begun = waiting.begun.result(60)
    assert begun >= max(each.begun.result() for each in running)
    for later, left in ((0.0, 5.0), (4.5, 0.5), (7.0, 0.0)):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda now=begun + later: now))
        assert waiting.seconds_left(5.0) == pytest.approx(left)
    assert waiting.grammar.result(60) is not None


def test_long_forms_are_kept_within_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[StructuredOutputsParams] = []
    monkeypatch.setattr(module, "compile_grammar", lambda form, _: compiled.append(form) or form)
    grammars = Grammars(VOCABULARY)
    size = 100_000
    fits = MOST_KEPT_BYTES // size
    assert fits < MOST_KEPT
    for n in range(fits):
        grammars.get(StructuredOutputsParams(regex=f"{n:0{size}}"))
    grammars.get(StructuredOutputsParams(regex=f"{0:0{size}}"))
    assert len(compiled) == fits
    grammars.get(StructuredOutputsParams(regex=f"{fits:0{size}}"))  # the oldest is forgotten: 1
    grammars.get(StructuredOutputsParams(regex=f"{0:0{size}}"))
    assert len(compiled) == fits + 1
    grammars.get(StructuredOutputsParams(regex=f"{1:0{size}}"))
    assert len(compiled) == fits + 2


def test_no_more_wait_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(module, "compile_grammar", slow)
    grammars = Grammars(VOCABULARY)
    futures = [grammars.submit(StructuredOutputsParams(regex=f"slow {n}")) for n in range(MOST_WAITING)]
    with pytest.raises(QueueFullError, match="are being compiled") as error:
        grammars.submit(choices("quick"))
    assert error.value.retry_after == grammars.time_limit
    assert len(slow.begun) <= THREADS
    slow.go.set()
    for each in futures:
        each.grammar.result(60)
    grammars.get(choices("quick"))


def test_an_error_is_not_remembered() -> None:
    grammars = Grammars(VOCABULARY)
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"structured_outputs\.regex can't be enforced"):
            grammars.get(StructuredOutputsParams(regex="("))
    threads = [each for each in threading.enumerate() if each.name == "cutaway-grammar"]
    for each in threads:
        each.join(10)


@pytest.mark.parametrize(
    "form",
    [
        {"regex": ""},
        {"regex": 5},
        {"choice": []},
        {"choice": [""]},
        {"choice": "yes"},
        {"choice": ["a", 1]},
        {"choice": ["a"] * 4097},
        {"grammar": ""},
        {"json": 5},
        {"json": "{"},
        {"json": "[1]"},
        {"json": "true"},
        {"json": '{"const": NaN}'},
        {"json": {"const": float("nan")}},
        {"json": {"const": {1, 2}}},
        {"json_object": 1},
        {"json_object": "yes"},
        {"regex": "a" * (1 << 17) + "a"},
        {"regex": "\ud800"},
        {"json": {"const": "\ud800"}},
        {"choice": ["\ud800"]},
    ],
    ids=lambda form: str(form)[:40].encode("ascii", "replace").decode(),
)
def test_the_wrong_types_are_refused_by_name(form: dict[str, Any]) -> None:
    (kind,) = form
    with pytest.raises(InvalidRequestError) as error:
        StructuredOutputsParams(**form)
    assert error.value.field == f"structured_outputs.{kind}"
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "form", [{}, {"json_object": False}, {"regex": "a", "choice": ["a"]}, {"json": {}, "json_object": True}]
)
def test_exactly_one_kind_is_asked_for(form: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="exactly one of") as error:
        StructuredOutputsParams(**form)
    assert error.value.field == "structured_outputs"


@pytest.mark.parametrize("regex", ["a{0}", "$", "^$", "(|a{0})"])
def test_a_form_of_nothing_is_refused(regex: str) -> None:
    with pytest.raises(InvalidRequestError, match="no answer but an empty one"):
        Grammars(VOCABULARY).get(StructuredOutputsParams(regex=regex))


@pytest.mark.parametrize(
    "text",
    [
        "a\nb",
        'q"',
        "\\",
        "\u0001",
        "é😀",
        "a/b",
        "\x7f",
        "\u2028",
        "</s>",
        "<|end|>",
        "$^.*[",
        "%json {}",
        " a ",
        "日本",
    ],
)
def test_choices_are_texts_whatever_is_in_them(grammars: Grammars, text: str) -> None:
    state = grammars.get(choices(text, text + "!")).start()
    for byte in text.encode():
        assert not state.accepts
        state.advance(byte)
    assert state.accepts
    assert not state.finished
    state.advance(ord("!"))
    assert state.finished


@pytest.mark.parametrize(
    ("regex", "good", "bad"),
    [
        (r"\d{3}-\d", "123-4", "１"),
        (r"\w+", "aZ_9", "é"),
        (r"a\sb", "a b", "a\u00a0"),
        (r"^a|b$", "b", "c"),
        ("a/b", "a/b", "b"),
        ("[^x]", "é", "x"),
        ("é+", "éé", "e"),
        ("(?s).", "\n", "ab"),
    ],
)
def test_a_regex_matches_the_whole_answer(grammars: Grammars, regex: str, good: str, bad: str) -> None:
    grammar = grammars.get(StructuredOutputsParams(regex=regex))
    assert after(grammar, good.encode()).accepts
    with pytest.raises(InvalidRequestError):
        after(grammar, bad.encode())


LARK = r"""
start: greeting ", " name ("!" | "?")
greeting: "Hello" | "Bonjour"
name: /[A-Z][a-z]{1,7}/
"""


@pytest.mark.parametrize("seed", range(10))
def test_a_lark_grammar(grammars: Grammars, seed: int) -> None:
    text, ended = random_answer(grammars.get(StructuredOutputsParams(grammar=LARK)), JSON_BYTES, seed)
    assert ended
    assert re.fullmatch("(Hello|Bonjour), [A-Z][a-z]{1,7}[!?]", text.decode())


@pytest.mark.parametrize(
    "lark", ["start: a", 'foo: "a"', 'start: start "a"', "start: /(?<=x)/", "root ::= 'a'", "start:"]
)
def test_a_lark_grammar_that_is_none_is_refused(grammars: Grammars, lark: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^structured_outputs\.grammar can't be enforced: \w") as error:
        grammars.get(StructuredOutputsParams(grammar=lark))
    assert error.value.field == "structured_outputs.grammar"


@pytest.mark.parametrize("seed", range(20))
def test_any_json_object(grammars: Grammars, seed: int) -> None:
    text, ended = random_answer(grammars.get(StructuredOutputsParams(json_object=True)), JSON_BYTES, seed)
    assert ended
    assert isinstance(json.loads(text), dict)


def test_white_space_is_bounded(grammars: Grammars) -> None:
    """A model that writes white space wherever it may comes to its end."""
    state = grammars.get(
        StructuredOutputsParams(
            json={
                "type": "object",
                "properties": {"a": {"const": [1]}},
                "required": ["a"],
                "additionalProperties": False,
            }
        )
    ).start()
    spaces = 0
    text = b""
    for _ in range(1000):
        if state.finished:
            break
        allowed = [b for b in range(256) if int(state.allowed.view("u4")[b // 32]) >> b % 32 & 1]
        white = [b for b in allowed if b in b" \t\r\n"]
        token = max(white, key=lambda b: b in b"\n") if white else allowed[0]
        spaces += bool(white)
        text += bytes([token])
        state.advance(token)
    assert state.finished
    assert spaces <= 8 * 34
    assert text.split() == [b"{", b'"a"', b":", b"[", b"1", b"]", b"}"]


def test_the_vocabulary_is_made_when_the_first_form_comes() -> None:
    asked: list[int] = []

    class Watched(SmallVocabulary):
        def token_bytes(self, token_id: int) -> bytes:
            asked.append(token_id)
            return super().token_bytes(token_id)

    watched: Any = Watched([b"a", b"b"])
    grammars = Grammars(watched)
    assert asked == []
    grammars.get(choices("a"))
    grammars.get(choices("b"))
    assert asked == list(range(watched.vocab_size))


def test_threads_end_with_their_work() -> None:
    grammars = Grammars(VOCABULARY)
    grammars.get(choices("a"))
    end = time.monotonic() + 10
    while any(each.name == "cutaway-grammar" for each in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
