"""Whole tokenizer.json files: the same ids as the `tokenizers` package, the text back again, and the roles that other
files of a folder declare.
"""

import json
import os
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from charsmaps import charsmap
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_texts import LONG, in_every_unicode, random_text, texts
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer import Tokenizer
from cutaway.tokenizer.huggingface import load_tokenizer_folder, load_tokenizer_json
from cutaway.tokenizer.huggingface.load import Roles

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't care; it's 2024 now.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 中文 字符, 한국어!",
    "def f(x):\n    return x + 1  # one more\n\n<s>\t</s> [INST] the end of the beginning",
] * 3
SPELLED = ["<s>", "</s>", "<unk>", "<mask>", "<tool>", "the", " the", "Ab", "  ", "<|x|>", "<0x41>"]


def byte_level() -> tokenizers.Tokenizer:
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"], show_progress=False
    )
    built.train_from_iterator(CORPUS, trainer)
    built.add_tokens(["<tool>", "ilÖveyou"])
    built.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return built


def llama_like(byte_fallback: bool, fuse_unk: bool) -> tokenizers.Tokenizer:
    built = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    built.decoder = decoders.Sequence(steps)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, limit_alphabet=40, show_progress=False)
    built.train_from_iterator([line.replace(" ", "▁") for line in CORPUS], trainer)
    parsed = json.loads(built.to_str())
    parsed["added_tokens"] = parsed["added_tokens"][:3]  # the bytes are pieces, not added tokens
    return tokenizers.Tokenizer.from_str(json.dumps(parsed))


def unigram(byte_fallback: bool, scheme: str) -> tokenizers.Tokenizer:
    built = tokenizers.Tokenizer(models.Unigram())
    built.normalizer = normalizers.NFKC()
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    built.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False
    )
    built.train_from_iterator(CORPUS, trainer)
    parsed = json.loads(built.to_str())
    if byte_fallback:
        parsed["model"]["vocab"] += [[f"<0x{byte:02X}>", -30.0] for byte in range(256)]
        parsed["model"]["byte_fallback"] = True
        parsed["decoder"] = json.loads(llama_like(True, True).to_str())["decoder"]
    return tokenizers.Tokenizer.from_str(json.dumps(parsed))


BUILDERS: dict[str, Any] = {
    "byte-level": byte_level,
    "llama": lambda: llama_like(True, True),
    "llama without bytes": lambda: llama_like(False, True),
    "llama, unknown one by one": lambda: llama_like(False, False),
    "unigram": lambda: unigram(False, "always"),
    "unigram with bytes": lambda: unigram(True, "always"),
    "unigram, first": lambda: unigram(False, "first"),
}


@pytest.fixture(scope="module")
def pairs() -> dict[str, tuple[Tokenizer, tokenizers.Tokenizer]]:
    built = {name: build() for name, build in BUILDERS.items()}
    return {name: (load_tokenizer_json(each.to_str()), each) for name, each in built.items()}


some_texts = st.lists(st.one_of(st.sampled_from(SPELLED), texts.filter(in_every_unicode)), max_size=4).map("".join)


@settings(max_examples=50)
@given(some_texts)
@pytest.mark.parametrize("name", BUILDERS)
def test_same_ids(pairs: dict[str, tuple[Tokenizer, tokenizers.Tokenizer]], name: str, text: str) -> None:
    ours, theirs = pairs[name]
    if "bytes" in name:
        text = text.replace("<0x", "")
    assert ours.encode(text, parse_special=True, add_bos=False) == theirs.encode(text, add_special_tokens=False).ids
    if name != "byte-level" and ("<s>" in text or "<unk>" in text):
        return  # as text they are spelled otherwise there: the pieces <s> and <unk> are found in it
    theirs.encode_special_tokens = True
    try:
        assert ours.encode(text, add_bos=False) == theirs.encode(text, add_special_tokens=False).ids
    finally:
        theirs.encode_special_tokens = False


@pytest.mark.skipif(LONG not in os.environ, reason=f"takes minutes: {LONG}=1 pytest tests/tokenizer")
@pytest.mark.parametrize("name", BUILDERS)
def test_a_hundred_thousand_texts(pairs: dict[str, tuple[Tokenizer, tokenizers.Tokenizer]], name: str) -> None:
    ours, theirs = pairs[name]
    noise = random.Random(name)
    for _ in range(100_000):
        text = "".join(filter(in_every_unicode, random_text(noise, SPELLED)))
        if "bytes" in name:
            text = text.replace("<0x", "")
        assert ours.encode(text, parse_special=True, add_bos=False) == theirs.encode(text, add_special_tokens=False).ids


@settings(max_examples=50)
@given(texts)
@pytest.mark.parametrize("name", ["byte-level", "llama"])
def test_decoding_gives_the_text(pairs: dict[str, Any], name: str, text: str) -> None:
    ours, _ = pairs[name]
    text = text if name == "byte-level" else text.replace("▁", " ")
    assert ours.decode(ours.encode(text)) == text


def test_bos_as_the_post_processor_says(pairs: dict[str, Any]) -> None:
    ours, theirs = pairs["byte-level"]
    assert ours.encode("the dog") == theirs.encode("the dog").ids
    assert ours.bos_id == 0
    assert pairs["llama"][0].encode("the") == pairs["llama"][1].encode("the").ids


def test_added_tokens_are_no_byte_alphabet(pairs: dict[str, Any]) -> None:
    """Ö is a letter of the byte alphabet, for a byte that is no UTF-8 by itself."""
    ours, theirs = pairs["byte-level"]
    ids = ours.encode("so ilÖveyou", add_bos=False)
    assert ids == theirs.encode("so ilÖveyou", add_special_tokens=False).ids
    assert ids[-1] == theirs.token_to_id("ilÖveyou")
    assert ours.decode(ids) == "so ilÖveyou"


def test_bytes_for_what_unigram_does_not_know(pairs: dict[str, Any]) -> None:
    ours, theirs = pairs["unigram with bytes"]
    ids = ours.encode("🦙")
    assert [theirs.id_to_token(each) for each in ids[-4:]] == ["<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"]
    assert ours.decode(ids) == "🦙"


@pytest.mark.parametrize("name", ["llama", "unigram", "unigram with bytes"])
def test_text_never_spells_a_control_token_or_a_byte(pairs: dict[str, Any], name: str) -> None:
    ours, _ = pairs[name]
    for text in ("<s>", "<unk>", "</s>", "<0x41>"):
        ids = ours.encode(text, add_bos=False)
        assert len(ids) > 1
        assert not any(ours.is_special(each) for each in ids if each != 0)  # 0: characters that it doesn't know
    if name != "unigram":
        assert ours.decode(ours.encode("a<s><0x41>")) == "a<s><0x41>"


# -- added tokens


@pytest.fixture(scope="module")
def flagged() -> list[tuple[str, Tokenizer, tokenizers.Tokenizer]]:
    """A tokenizer for each way in which added tokens may be looked for, and each of two normalizers."""
    built = []
    for normalizer, flags in product(
        (normalizers.Lowercase(), normalizers.Prepend("▁")), product((False, True), repeat=4)
    ):
        each = tokenizers.Tokenizer.from_str(byte_level().to_str())
        each.normalizer = normalizer
        names = dict(zip(("lstrip", "rstrip", "single_word", "normalized"), flags, strict=True))
        each.add_tokens([AddedToken(text, **names) for text in ("<Mask>", "Ab", "ab c")])
        each.add_special_tokens([AddedToken("<S>", **names)])
        built.append((str(names), load_tokenizer_json(each.to_str()), each))
    return built


pieces = st.sampled_from(
    ["<Mask>", "<mask>", "Ab", "ab", "AB", "ab c", "<S>", "<s>", " ", "  ", "\n", "x", "_", "é", "1", ".", "c"]
)


@settings(max_examples=200)
@given(st.lists(pieces, max_size=8).map("".join))
def test_added_tokens_are_found_as_their_flags_say(flagged: list[Any], text: str) -> None:
    for flags, ours, theirs in flagged:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, parse_special=True, add_bos=False) == expected, flags


def test_control_tokens_of_normalized_text_are_the_templates_alone(flagged: list[Any]) -> None:
    template = "{% for m in messages %}<S>{{ m.content }}<S>{% endfor %}"
    for flags, ours, theirs in flagged:
        control = theirs.token_to_id("<S>")
        plain = ours.encode("<S>(Hello there)<S>", parse_special=True, add_bos=False)
        assert control in plain, flags
        assert ours.encode_chat([{"role": "user", "content": "(Hello there)"}], chat_template=template) == plain, flags
        ids = ours.encode_chat([{"role": "user", "content": "(hi <S>)"}], chat_template=template)
        assert ids.count(control) == plain.count(control), flags


NORMALIZERS: dict[str, Any] = {
    "NFC": normalizers.NFC(),
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "Lowercase": normalizers.Lowercase(),
    "Prepend": normalizers.Prepend("▁"),
    "Replace": normalizers.Replace("!", "<S>"),
    "Replace longer": normalizers.Replace("e", "three"),
    "Strip": normalizers.Strip(),
    "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]),
    "character map": normalizers.Precompiled(charsmap({"！": "<S>", "e": "eee", "S": "s"})),
}
WRITTEN = [
    "e\u0301",
    "é",
    "ﬁ",
    "＜Ｓ＞",
    "＜S＞",
    "<S>",
    "!",
    "！",
    "e",
    " ",
    "㎏",
    "ß",
    "x",
    "\U0010fffd",
    "ſ",
    "<",
    "S>",
]


@pytest.fixture(scope="module", params=NORMALIZERS)
def normalizing(request: pytest.FixtureRequest) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """A tokenizer whose control tokens are looked for in normalized text."""
    theirs = tokenizers.Tokenizer.from_str(byte_level().to_str())
    theirs.normalizer = NORMALIZERS[request.param]
    theirs.add_special_tokens([AddedToken(text, normalized=True) for text in ("<S>", "<E e>")])
    return load_tokenizer_json(theirs.to_str()), theirs


TURNS = "{% for m in messages %}<S>{{ m.content }}<E e>\n{% endfor %}<S>"


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(WRITTEN), max_size=6).map("".join), min_size=1, max_size=3))
def test_normalization_neither_makes_nor_loses_control_tokens(normalizing: Any, contents: list[str]) -> None:
    """As many as with messages that say nothing, and where the text spells none, the ids of the whole text."""
    ours, theirs = normalizing
    messages = [{"role": "user", "content": content} for content in contents]
    ids = ours.encode_chat(messages, chat_template=TURNS)
    silent = ours.encode_chat([{"role": "user", "content": "x"} for _ in contents], chat_template=TURNS)
    control = {theirs.token_to_id("<S>"), theirs.token_to_id("<E e>")}
    assert [each for each in ids if each in control] == [each for each in silent if each in control]
    whole = theirs.encode("".join(f"<S>{content}<E e>\n" for content in contents) + "<S>", add_special_tokens=False).ids
    if sum(each in control for each in whole) == sum(each in control for each in silent):
        assert ids == whole


def test_a_character_that_changes_the_control_token_before_it_is_no_way_to_make_one() -> None:
    """U+0338 strikes the > before it through. The token is none then, there as here; nor are those behind it here."""
    theirs = tokenizers.Tokenizer.from_str(byte_level().to_str())
    theirs.normalizer = NORMALIZERS["NFC"]
    theirs.add_special_tokens([AddedToken("<S>", normalized=True)])
    ours, control = load_tokenizer_json(theirs.to_str()), theirs.token_to_id("<S>")
    assert theirs.encode("<S>\u0338x<S>", add_special_tokens=False).ids.count(control) == 1
    ids = ours.encode_chat([{"role": "user", "content": "\u0338x"}], chat_template="<S>{{ messages[0].content }}<S>")
    assert ids.count(control) == 0
    assert ours.decode(ids) == "<S\u226fx<S>"


# -- files


def changed(**parts: Any) -> str:
    parsed = json.loads(byte_level().to_str())
    for name, value in parts.items():
        if name in ("dropout", "byte_fallback", "merges", "vocab", "unk_token", "continuing_subword_prefix"):
            parsed["model"][name] = value
        else:
            parsed[name] = value
    return json.dumps(parsed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tokenizer.json is no JSON"),
        ("[" * 100_000, "tokenizer.json is no JSON"),
        ("[]", "must be an object"),
        ("{}", "has no model"),
        (
            changed(model={"type": "WordPiece"}),
            "model is of type 'WordPiece', which is not supported; supported are BPE",
        ),
        (changed(dropout=0.1), "model has dropout 0.1"),
        (changed(continuing_subword_prefix="##"), "continuing_subword_prefix '##'"),
        (changed(merges=[["a"]]), r"the merge \['a'\]"),
        (changed(merges=["a zz"]), "needs 'zz'"),
        (changed(vocab={"a": "b"}), "ids are not whole numbers"),
        (changed(vocab={"a": -1}), "ids are not whole numbers"),
        (changed(vocab={"a": 1 << 40}, merges=[]), "highest token id"),
        (changed(vocab={"a": 300, "b": 300}, merges=[]), "gives the id 300 to"),
        (changed(unk_token="<none>"), "unk_token '<none>'"),
        (changed(added_tokens=[{"content": "", "id": 1}]), "the content ''"),
        (changed(model={"type": "Unigram", "vocab": [["a", float("inf")]], "unk_id": 0}), "finite"),
        (changed(model={"type": "Unigram", "vocab": [["a", 0.0], ["a", 0.0]], "unk_id": 0}), "twice"),
        (changed(model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1}), "unk_id 1"),
        (changed(model={"type": "Unigram", "vocab": ["a"], "unk_id": 0}), r"vocab\[0\]"),
    ],
)
def test_bad_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_tokenizer_json(text)


def test_what_stands_behind_a_text_is_left_out_with_a_warning() -> None:
    built = byte_level()
    built.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    with pytest.warns(UserWarning, match="puts </s> behind every text"):
        tokenizer = load_tokenizer_json(built.to_str())
    assert len(tokenizer.notes) == 1
    assert tokenizer.encode("a") == built.encode("a").ids[:-1]


def test_two_tokens_before_a_text_are_refused() -> None:
    built = byte_level()
    built.post_processor = processors.TemplateProcessing(single="<s> </s> $A", special_tokens=[("<s>", 0), ("</s>", 1)])
    with pytest.raises(ModelFileError, match="puts 2 tokens before every text"):
        load_tokenizer_json(built.to_str())


def test_a_character_without_token_is_refused() -> None:
    parsed = json.loads(byte_level().to_str())
    parsed["model"] |= {"vocab": {"<s>": 0, "</s>": 1, "a": 2}, "merges": []}
    parsed["added_tokens"] = parsed["added_tokens"][:2]
    tokenizer = load_tokenizer_json(json.dumps(parsed))
    with pytest.raises(InvalidRequestError, match="the byte 0x62"):
        tokenizer.encode("ab")


def test_a_folder_declares_roles_and_the_template(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        load_tokenizer_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(byte_level().to_str())
    bare = load_tokenizer_folder(tmp_path)
    assert bare.eos_ids == {1}  # </s>, by its name
    assert bare.chat_template is None
    size = bare.vocab_size
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 5, "vocab_size": size + 3}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [6, 7]}))
    templates = [{"name": "tools", "template": "t"}, {"name": "default", "template": "{{ messages }}"}]
    config = {"eos_token": {"content": "<tool>"}, "bos_token": "<s>", "chat_template": templates}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer_folder(tmp_path)
    assert tokenizer.eos_ids == {1, 5, 6, 7, *tokenizer.encode("<tool>", add_bos=False)}
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.vocab_size == size + 3
    assert tokenizer.decode([size + 2]) == f"[PAD{size + 2}]"
    (tmp_path / "chat_template.jinja").write_text("own")
    assert load_tokenizer_folder(tmp_path).chat_template == "own"
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 10**6}))
    with pytest.raises(ModelFileError, match="1000000 is outside the vocabulary"):
        load_tokenizer_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelFileError, match=r"config\.json: is no JSON"):
        load_tokenizer_folder(tmp_path)


def test_roles_are_optional() -> None:
    assert load_tokenizer_json(byte_level().to_str(), Roles()).encode("a") == load_tokenizer_json(
        byte_level().to_str().encode()
    ).encode("a")
