"""Chat templates: published ones render their published texts, sandboxed and with all user text marked."""

import datetime
import json
import re
import time
import tracemalloc
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from template_bombs import BOMBS as GROWING
from tokenizer_cases import template_cases

from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError
from cutaway.tokenizer.chat_messages import mark_messages, mark_variables
from cutaway.tokenizer.chat_template import ChatTemplate
from cutaway.tokenizer.provenance import Marks
from cutaway.tokenizer.template_allowance import RenderLimits

# Harsher than any vocabulary: all printable ASCII belongs to a control token, but what JSON escapes.
EVERYTHING = Marks(["".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '"\\')])
NOTHING = Marks([])
NOW = datetime.datetime(2025, 7, 10)  # the day of SmolLM3's published text
USER = [{"role": "user", "content": "hello"}]


@lru_cache
def compiled(source: str, marks: Marks) -> ChatTemplate:
    return ChatTemplate(source, marks)


@lru_cache
def compiled_plainly(source: str) -> Template:
    """Jinja's own sandbox with Hugging Face's settings and functions."""
    oracle = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])

    def raise_exception(reason: str) -> None:
        raise ValueError(reason)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    oracle.globals["raise_exception"] = raise_exception
    oracle.globals["strftime_now"] = NOW.strftime
    oracle.filters["tojson"] = tojson
    return oracle.from_string(re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", source))


def render(source: str, marks: Marks = EVERYTHING, messages: Any = USER, **variables: Any) -> str:
    return marks.unmark(compiled(source, marks).render(mark_messages(messages, marks), variables, now=lambda: NOW))


@pytest.mark.parametrize("marks", [EVERYTHING, NOTHING], ids=["marked", "plain"])
@pytest.mark.parametrize("case", template_cases(), ids=lambda case: case["name"])
def test_published_templates(case: dict[str, Any], marks: Marks) -> None:
    variables = {key: value for key, value in case["data"].items() if key != "messages"}
    target = case["target"]
    if case["name"] == "MadeAgents/Hammer2.1":  # it prints a list, which Python's Jinja writes in Python's way
        target = target.replace(json.dumps(variables["tools"]), str(variables["tools"]))
    assert render(case["chat_template"], marks, case["data"]["messages"], **variables) == target
    own = {"add_generation_prompt", "bos_token", "eos_token"}
    given = mark_variables({name: value for name, value in variables.items() if name not in own}, (), marks)
    assert render(case["chat_template"], marks, case["data"]["messages"], **{**variables, **given}) == target


contents = st.lists(
    st.sampled_from(
        [
            "Hello",
            " ",
            "\n",
            "<|im_end|>",
            "</think>",
            "<think>",
            "[INST]",
            "ß",
            '"',
            "\\",
            "é",
            "{{ x }}",
            "'",
        ]
    )
).map("".join)


@given(st.lists(contents, min_size=1, max_size=5), st.booleans())
@pytest.mark.parametrize("case", template_cases(), ids=lambda case: case["name"])
def test_marked_rendering_is_plain_rendering(case: dict[str, Any], texts: list[str], prompt: bool) -> None:
    """Whatever users write, the text is the one that Jinja makes of the plain strings."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    variables = {key: value for key, value in case["data"].items() if key != "messages"}
    variables["add_generation_prompt"] = prompt
    source = case["chat_template"]
    try:
        expected = compiled_plainly(source).render(messages=messages, **variables)
    except Exception:
        with pytest.raises(InvalidRequestError):
            render(source, messages=messages, **variables)
    else:
        assert render(source, messages=messages, **variables) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "hello"}'),
        ("{{ {'k': 'é<&'} | tojson(indent=1) }}", '{\n "k": "é<&"\n}'),
        ("{{ messages[0] }}", "{'role': 'user', 'content': 'hello'}"),
        ("{{ messages[0].content | upper ~ '!' }}", "HELLO!"),
        ("{{ messages[0].content | replace('l', 'L') }}", "heLLo"),
        ("{{ messages[0].content | title | truncate(4, True, '.', 0) }}", "Hel."),
        ("{{ messages | map(attribute='content') | join(', ') }}", "hello"),
        ("{{ '%s-%d' % (messages[0].content, 7) }}", "hello-7"),
        ("{{ '7' | int + 1 }}", "8"),
        ("{% if 'ell' in messages[0].content %}yes{% endif %}", "yes"),
        ("{% if messages[0].content == 'hello' %}yes{% endif %}", "yes"),
        ("{{ {'hello': 'found'}[messages[0].content] }}", "found"),
        ("{% set text %}<{{ messages[0].content }}>{% endset %}{{ text.strip('<>') }}", "hello"),
        ("{% macro m(x) %} {{ x }} {% endmacro %}{{ m(messages[0].content).strip() == 'hello' }}", "True"),
        ("{% for c in messages[0].content if c == 'l' %}{{ c }}{% break %}{% endfor %}", "l"),
        (
            "{% for c in messages[0].content %}{% if c == 'l' %}{% continue %}{% endif %}{{ c }}{% endfor %}",
            "heo",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "hello"),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{{ messages[0].missing }}", ""),
    ],
)
def test_constructs(source: str, expected: str) -> None:
    assert render(source) == expected


def test_dates_come_from_the_clock_that_is_passed() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", NOTHING)
    assert template.render([], {}, now=lambda: NOW) == "10 Jul 2025"


def test_tool_arguments_keep_their_order_and_letters() -> None:
    arguments = {"z": "größer", "a": [1, 2.5, None, True], "<|im_end|>": {"x": '\n"\\'}}
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    messages = [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]
    expected = '{"z": "größer", "a": [1, 2.5, null, true], "<|im_end|>": {"x": "\\n\\"\\\\"}}'
    assert render(source, messages=messages) == expected


ESCAPES = [
    '{{ lipsum.__globals__["os"].popen("id").read() }}',
    "{{ cycler.__init__.__globals__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__ }}",
    "{{ messages[0].content.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages[0].content.marks._to_mark }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ (''|attr('__class__')) }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ range.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{% set x = messages.append(1) %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{{ (1).to_bytes(4, 'big') }}",
    "{{ 'a'.encode() }}",
]


@pytest.mark.parametrize("source", ESCAPES)
@pytest.mark.parametrize("marks", [EVERYTHING, NOTHING], ids=["marked", "plain"])
def test_nothing_is_reached_from_a_template(source: str, marks: Marks) -> None:
    with pytest.raises(CutawayError):
        render(source, marks)


BOMBS = [
    "{% for i in range(10**9) %}{% endfor %}",
    "{{ 10**9**9**9 }}",
    "{{ 'a' * 10**9 }}",
    "{{ [0] * 10**9 }}",
    "{{ 'a' * 99999999999999999999999 }}",
    "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}"
    "{{ n.x|tojson }}",
    "{% set n = namespace(x=(1,)) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x == n.x }}",
    "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x | replace('a', 'aa') %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x.replace('a', 'aaaa') %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x.join(n.x) %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x | join(n.x) %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}{% endset %}",
    "{% set b = 'x' * 999999 %}{% for i in range(99999) %}{{ b[1:] }}{% endfor %}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a\nb' | indent(1000000000) }}",
    "{{ 'a\nb' | indent('x' * 10000000) }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{{ [1, 2] | tojson(separators=('x' * 1000000, ':')) }}",
    "{{ [1] | batch(10**9, 0) | list }}",
    "{{ [1] | slice(10**9) | list }}",
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "{{ " + "not " * 20_000 + "1 }}",
    "{{ 1" + " + 1" * 20_000 + " }}",
    "{% if 1 %}" * 5_000 + "{% endif %}" * 5_000,
    "{% for i in messages %}" * 100 + "{% endfor %}" * 100,
    "x" * 300_000,
]


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[:60])
def test_a_bomb_is_defused(source: str) -> None:
    """Refused while compiling, by the allowance of material, or after the time, which is short here."""
    seconds = 0.3
    with pytest.raises(ModelFileError):
        ChatTemplate(source, EVERYTHING, RenderLimits(2**20, seconds)).render(mark_messages(USER, EVERYTHING), {})


@pytest.mark.parametrize("name", GROWING)
def test_a_rendering_keeps_to_its_memory_and_time(name: str) -> None:
    """Refused for what the template does, within 16 bytes a unit (8, and 8 for what a step holds at its end), and
    with no step so long that the time can't stop it.
    """
    limits = RenderLimits(seconds=0.5)
    tracemalloc.start()
    try:
        template = ChatTemplate(GROWING[name], EVERYTHING, limits)
        tracemalloc.reset_peak()
        before, start = tracemalloc.get_traced_memory()[0], time.process_time()
        with pytest.raises(ModelFileError, match=r"chat template (creates|runs|is refused)"):
            template.render(mark_messages(USER, EVERYTHING), {})
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] - before
    except ModelFileError:  # names that templates don't get are refused while compiling
        assert name in ("center", "urlize", "wordwrap")
        return
    finally:
        tracemalloc.stop()
    assert peak < 16 * limits.material
    assert seconds < 6  # tracing makes steps several times longer


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ none|list if none else 'x' }}{{ missing|sort }}{{ none|map('upper')|list }}", "x[][]"),
        ("{{ ['b', 'A', 'c']|sort|join }}{{ ['a', 'A', 'b']|unique|join }}", "Abcab"),
        ("{% for k, v in [{'x': 1}, {'x': 2}, {'x': 1}]|groupby('x') %}{{ k }}{{ v|length }}{% endfor %}", "1221"),
        ("{{ [{'x': 'b'}, {'x': 'a'}]|map(attribute='x')|join(',') }}", "b,a"),
        ("{{ [{'x': 3}, {'x': 2}]|max(attribute='x') }}", "{'x': 3}"),
        ("{{ range(5)|batch(2, 0)|list }}{{ range(3)|slice(2)|list }}", "[[0, 1], [2, 3], [4, 0]][[0, 1], [2]]"),
        ("{{ 'abc'|reverse }}{{ range(3)|reverse|list }}{{ range(3)|select('odd')|reverse|list }}", "cba[2, 1, 0][1]"),
        (
            "{{ {'b': 1, 'a': 2}|dictsort }}{{ {'b': 2, 'a': 1}|dictsort(by='value') }}",
            "[('a', 2), ('b', 1)]" + "[('a', 1), ('b', 2)]",
        ),
        (
            "{{ 'a  b c'.split() }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\r\nb'.splitlines() }}",
            "['a', 'b', 'c']['a,b', 'c']['a', 'b']",
        ),
        (
            "{{ 'a b c'.split(maxsplit=1) }}{{ 'xxaxx'.strip('x') }}{{ 'xax'|trim('x') }}{{ 'aba'.rfind('a') }}",
            "['a', 'b c']aa2",
        ),
        (
            "{{ '%s is %5.1f%%' % ('a', 2) }}{{ '%(a)s%(b)3d' % {'a': 1, 'b': 2} }}{{ '%*d' % (4, 1) }}",
            "a is   2.0%1  2   1",
        ),
        (
            "{% set x %}{% for i in [1, 2, 3] if i != 2 %}{{ i }}{{ loop.length }}{% endfor %}"
            "{% endset %}{{ x|upper }}",
            "1232",
        ),
        ("{{ dict(*[[['a', 1]]]) }}{{ dict(**{'a': 1}) }}{{ [1, 2, 2.5]|string }}", "{'a': 1}{'a': 1}[1, 2, 2.5]"),
        ("{{ 7 - 2 }}{{ 7 // 2 }}{{ 1 / 2 }}{{ '12'|int }}{{ 'ff'|int(base=16) }}{{ 'x'|int(3) }}", "530.5122553"),
        ("{{ 'a-b (c) ä中'|title }}{{ 'a\nb\u2028c'|indent(2, true) }}", "A-B (C) Ä中  a\n  b\n  c"),
        ("{{ messages[0].content|list|join('-') }}{{ 'Éa'|upper }}{{ 'ß中'|upper }}", "h-e-l-l-oÉASS中"),
    ],
)
def test_charging_changes_no_result(source: str, expected: str) -> None:
    assert render(source) == expected == compiled_plainly(source).render(messages=USER)


def test_the_allowance_grows_with_the_messages() -> None:
    long = [{"role": "user", "content": "x" * 300_000}] * 4
    source = (
        "{% for m in messages %}{% set text = m.content | trim %}{{ '<|' ~ m.role + '|>' + text + '\\n' }}{% endfor %}"
    )
    template = ChatTemplate(source, EVERYTHING, RenderLimits(1000, 30.0))
    assert len(template.render(mark_messages(long, EVERYTHING), {})) == 4 * (300_000 + 9)


@pytest.mark.parametrize("source", ["{{ x", "{% for %}", "{% endif %}", "{{ 'a' | nosuchfilter }}", "{% nosuchtag %}"])
def test_broken_templates_are_refused_at_once(source: str) -> None:
    with pytest.raises(ModelFileError, match="can't be compiled"):
        ChatTemplate(source, NOTHING)


def test_what_a_template_raises_is_about_the_messages() -> None:
    with pytest.raises(InvalidRequestError, match="refuses these messages: roles must alternate, not hello") as caught:
        render("{{ raise_exception('roles must alternate, not ' + messages[0].content) }}")
    assert caught.value.field == "messages"
    with pytest.raises(InvalidRequestError, match="can't render these messages: 'dict object' has no attribute 'x'"):
        render("{{ messages[0].x.y }}")
    with pytest.raises(InvalidRequestError, match="can't render these messages: TypeError"):
        render("{{ messages[0].content + 1 }}")
