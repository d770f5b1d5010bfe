"""The built-in chat templates print what the published ones of their families print; how a template is named."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizer_cases import template_cases, tiny_metadata

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.built_in_templates import BUILT_IN, MissingTemplateError, built_in_source, find_template

GOLDENS = {case["name"]: case for case in template_cases()}

# Published templates that are not among the goldens, of google/gemma-7b-it (whose first line writes BOS), Meta-Llama-3
# and Phi-3-mini-4k-instruct.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
    "raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
    "{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
PHI3 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + "
    "message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] "
    "+ '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
PUBLISHED = {  # the published template, and whether it takes a system message
    "chatml": (GOLDENS["_base"]["chat_template"], True),
    "gemma": (GEMMA, False),
    "llama2": (GOLDENS["llama"]["chat_template"], True),
    "llama3": (LLAMA3, True),
    "mistral": (GOLDENS["mistralai/Mixtral-8x7B-Instruct-v0.1"]["chat_template"], False),
    "phi3": (PHI3, True),
    "zephyr": (GOLDENS["HuggingFaceH4/zephyr-7b-beta (add_generation_prompt=false)"]["chat_template"], True),
}
CONTROL = ("<s>", "</s>", *dict.fromkeys(token for tokens in BUILT_IN.values() for token in tokens))
FIRST = 259  # the id of the first control token of a tiny vocabulary
ROLES = {"bos_token_id": FIRST, "eos_token_id": FIRST + 1}

contents = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)


@lru_cache
def published(source: str) -> Template:
    def refuse(reason: str) -> None:
        raise AssertionError(reason)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source, globals={"raise_exception": refuse})


@lru_cache
def loaded(template: str | Path) -> Tokenizer:
    return load_tokenizer(tiny_metadata(CONTROL, **ROLES), chat_template=template)


def by_published(source: str, messages: list[dict[str, str]], prompt: bool) -> str:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return published(source).render(messages=messages, add_generation_prompt=prompt, **tokens)


def by_built_in(name: str | Path, messages: list[dict[str, Any]], prompt: bool = False, **options: Any) -> str:
    tokenizer = loaded(name)
    ids = tokenizer.encode_chat(messages, add_generation_prompt=prompt, **options)
    return tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize("name", BUILT_IN)
@given(st.lists(contents, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_as_the_published_one(name: str, texts: list[str], with_system: bool, prompt: bool) -> None:
    source, takes_system = PUBLISHED[name]
    roles = ["system"] if with_system and takes_system and len(texts) > 1 else []
    roles += ["user", "assistant"] * 3
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    assert by_built_in(name, messages, prompt) == by_published(source, messages, prompt)


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("chatml", "_base"),
        ("llama2", "llama"),
        ("mistral", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("zephyr", "HuggingFaceH4/zephyr-7b-beta (add_generation_prompt=false)"),
    ],
)
def test_goldens(name: str, golden: str) -> None:
    assert by_built_in(name, GOLDENS[golden]["data"]["messages"]) == GOLDENS[golden]["target"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma", "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n"),
        ("mistral", "<s>[INST] Be brief.\n\nHi [/INST]Ho</s>"),
    ],
)
def test_a_system_message_where_the_published_one_has_no_place(name: str, expected: str) -> None:
    """It goes before the first question, as the authors' later templates do it."""
    texts = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Ho")]
    assert by_built_in(name, [{"role": role, "content": content} for role, content in texts]) == expected


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_the_built_in_ones_refuse(name: str) -> None:
    user = {"role": "user", "content": "Hi"}
    with pytest.raises(InvalidRequestError, match=f"the built-in template {name} has no place for tools"):
        by_built_in(name, [user], tools=[{"type": "function", "function": {"name": "f"}}])
    with pytest.raises(InvalidRequestError):
        by_built_in(name, [user, {"role": "assistant", "content": None, "tool_calls": []}])
    if name not in ("chatml", "llama3"):
        with pytest.raises(InvalidRequestError, match=r"take turns|roles are"):
            by_built_in(name, [{"role": "tool", "content": "Hi"}])


@pytest.mark.parametrize("name", BUILT_IN)
@given(st.lists(st.sampled_from([*CONTROL, "<|", "|>", "end", "\n", "a"])).map("".join))
def test_content_never_becomes_a_control_token(name: str, content: str) -> None:
    def count(text: str) -> int:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
        return sum(map(loaded(name).is_special, loaded(name).encode_chat(messages)))

    assert count(content) == count("harmless")


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_table_names_the_control_tokens_that_the_source_writes(name: str) -> None:
    """All that a chat has between its texts, but BOS and EOS, which a vocabulary names itself."""
    text = by_built_in(name, [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], True)
    written = set(re.findall(r"<\|?\w+\|?>|<\w+>", text)) - {"<s>", "</s>"}
    assert written == set(BUILT_IN[name]) or (name, written) == ("zephyr", {"<|user|>", "<|assistant|>"})


# -- how a template is named


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("<s>é{{ messages[0].content }}", encoding="utf-8")
    for named in (path, str(path)):
        assert by_built_in(named, [{"content": "a"}]) == "<s>éa"


def test_a_name_comes_before_a_file_and_source_is_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chatml").write_text("the file")
    assert find_template("chatml", CONTROL) == built_in_source("chatml")
    assert find_template("./chatml", CONTROL) == "the file"
    assert find_template("{{ 1 }}", CONTROL) == "{{ 1 }}"


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("nosuch", "no built-in name (chatml, gemma,"),
        ("nosuch.jinja", "No such file"),
        (".", "Is a directory"),
        ("a\0b", "no built-in name"),
        ("", "no built-in name"),
        ("latin1.jinja", "is not UTF-8 text: byte 1 is 0xe9"),
        ("large.jinja", "at most"),
        ("broken.jinja", "can't be compiled"),
        ("{% for %}", "can't be compiled"),
        ("{{ ''.__class__.__mro__ }}{% include 'x' %}", "give another template"),
    ],
)
def test_what_is_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, part: str) -> None:
    """Said when the model is loaded, before any chat."""
    monkeypatch.chdir(tmp_path)
    Path("latin1.jinja").write_bytes(b"h\xe9")
    Path("large.jinja").write_bytes(b"x" * 5_000_000)
    Path("broken.jinja").write_bytes(b"{{ x")
    with pytest.raises(InvalidRequestError) as caught:
        load_tokenizer(tiny_metadata(CONTROL), chat_template=given)
    assert part in str(caught.value)
    assert caught.value.field == "chat_template"


def test_a_built_in_one_for_other_control_tokens() -> None:
    metadata = tiny_metadata(("<|im_start|>", "<|im_end|>"))
    with pytest.raises(
        InvalidRequestError, match=r"'gemma' writes <start_of_turn>, <end_of_turn>.*fit the built-in template chatml\."
    ):
        load_tokenizer(metadata, chat_template="gemma")
    with pytest.raises(InvalidRequestError, match="'gemma' writes"):
        load_tokenizer(metadata).encode_chat([{"role": "user", "content": "a"}], chat_template="gemma")
    load_tokenizer(metadata, chat_template=built_in_source("gemma"))  # who brings the source, gets it


@pytest.mark.parametrize(
    ("control", "part"),
    [
        (("<start_of_turn>", "<end_of_turn>"), 'chat_template="gemma" fits its tokens.'),
        (
            ("<start_of_turn>", "<end_of_turn>", "<|im_start|>", "<|im_end|>"),
            'chat_template="chatml" or chat_template="gemma" fits its tokens.',
        ),
        (("<s>",), "the one that its authors name: chatml, gemma, llama2, llama3, mistral, phi3, zephyr, or a Jinja"),
    ],
)
def test_no_template_at_all(control: tuple[str, ...], part: str) -> None:
    """A vocabulary may have the tokens of a template that nobody trained the model on: Gemma's base models."""
    tokenizer = load_tokenizer(tiny_metadata(control))
    with pytest.raises(MissingTemplateError, match=r"no chat template.*base model.*complete texts with gen") as caught:
        tokenizer.encode_chat([{"role": "user", "content": "a"}])
    assert part in str(caught.value)
    assert "--" not in str(caught.value), "that is not Python"
    assert caught.value.field == "messages"
    with pytest.raises(MissingTemplateError, match="base model"):
        tokenizer.require_chat_template()
    of_the_command = caught.value.advice("add --raw", "--chat-template {}")
    assert "not trained to chat: add --raw. " in of_the_command
    assert part.replace('chat_template="', "--chat-template ").replace('"', "") in of_the_command


def test_a_template_of_either_kind_is_enough() -> None:
    load_tokenizer(tiny_metadata(CONTROL, chat_template="own")).require_chat_template()
    load_tokenizer(tiny_metadata(CONTROL), chat_template="chatml").require_chat_template()


def test_a_requests_template_comes_before_the_given_one() -> None:
    tokenizer = load_tokenizer(tiny_metadata(CONTROL, chat_template="own"), chat_template="{{ 'given' }}")

    def text(**options: Any) -> str:
        return tokenizer.decode(tokenizer.encode_chat([{"role": "user", "content": "a"}], **options))

    assert text() == "given"
    assert text(chat_template="request") == "request"
    assert text(chat_template="chatml") == "user\na\nassistant\n"
    assert tokenizer.chat_template == "own"


# -- real vocabularies


def test_gemma_begins_with_one_bos(gemma3: Tokenizer) -> None:
    """The template writes BOS, and nothing adds another; ids from llama.cpp's tokenizer."""
    chat = [{"role": "user", "content": "hi"}]
    with pytest.raises(InvalidRequestError, match=r'no chat template.*"gemma" fits its tokens\.'):
        gemma3.encode_chat(chat)
    ids = gemma3.encode_chat(chat, chat_template="gemma")
    assert ids[:2] == [2, 105]
    assert ids.count(2) == 1
    assert ids[-3:] == [105, 4368, 107]
    assert gemma3.decode(ids, skip_special=False) == "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"
    assert gemma3.encode("hi")[:1] == gemma3.encode("<bos>hi", parse_special=True)[:1] == [2]
    assert gemma3.encode("<bos>hi", parse_special=True).count(2) == 1


def test_smollm2_by_the_built_in_template(smollm2: Tokenizer) -> None:
    """Its own is ChatML, with a system message of its own."""
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert smollm2.encode_chat(chat, chat_template="chatml") == smollm2.encode_chat(chat)


@pytest.mark.parametrize("given", [5, 0, True, 1.5, b"chatml", ["chatml"], {"a": 1}])
def test_what_is_no_template_at_all(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match=rf"chat_template is a {type(given).__name__}; it must be") as caught:
        find_template(given, CONTROL)
    assert caught.value.field == "chat_template"
