"""The tokenizer of a folder: the ids of the ``tokenizers`` package, the ends of an answer from all files."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.hf_folder import open_hf_folder
from cutaway.tokenizer import open_tokenizer
from cutaway.tokenizer.huggingface import load_tokenizer_folder
from support.hf_folders import hf_config, hf_tensors, write_folder
from support.tiny_llama import TinySizes, tiny_tensors

TEXT = (
    "The quick brown fox's 12345 jumps over\n\n the lazy dog’s back. 你好，世界 naïve café 🙂  \t x1y22z333 I'LL don't "
)


def trained() -> tokenizers.Tokenizer:
    """A small vocabulary, with two control tokens and a user-defined one."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken("<|begin|>", special=True), AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return tokenizer


def saved(folder: Path, tokenizer: tokenizers.Tokenizer, **others: Any) -> Path:
    """``others``: files beside ``tokenizer.json``, by their names without the ending."""
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in others.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_an_embedding_may_have_rows_to_spare(tmp_path: Path) -> None:
    theirs = trained()
    rows = theirs.get_vocab_size() + 7
    sizes = TinySizes(num_layers=1, width=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_width=64, vocab_size=rows)
    weights = hf_tensors(sizes, tiny_tensors(sizes, ("BF16",), tied=False))
    folder = saved(write_folder(tmp_path / "model", hf_config(sizes), weights, shards=1), theirs)
    with open_hf_folder(folder) as source:
        ours = open_tokenizer(source)
    assert ours.vocab_size == rows
    assert ours.piece(rows - 1) == f"[PAD{rows - 1}]"
    for text in (TEXT, TEXT.upper(), TEXT[::-1], "a<tool>b", *TEXT.split()):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_bos=False) == expected
        assert ours.decode(expected) == text
    assert ours.encode("<|end|>", parse_special=True, add_bos=False) == [theirs.token_to_id("<|end|>")]
    assert len(ours.encode("<|end|>", add_bos=False)) > 1
    assert ours.is_special(theirs.token_to_id("<|end|>"))
    assert not ours.is_special(theirs.token_to_id("<tool>"))


def test_the_ends_of_all_files_are_joined(tmp_path: Path) -> None:
    theirs = trained()
    begin, end, tool = (theirs.token_to_id(text) for text in ("<|begin|>", "<|end|>", "<tool>"))
    folder = saved(
        tmp_path,
        theirs,
        tokenizer_config={"eos_token": {"content": "<|end|>"}, "bos_token": "<|begin|>"},
        generation_config={"eos_token_id": [end, 5, tool]},
        config={"eos_token_id": 7, "bos_token_id": 3},
    )
    ours = load_tokenizer_folder(folder)
    assert ours.eos_ids == {end, 7, 5, tool}
    assert ours.bos_id == begin
    assert not ours.add_bos


def test_an_end_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, trained(), generation_config={"eos_token_id": [2, 10**6]})
    with pytest.raises(ModelFileError, match="the end-of-sequence id 1000000 is outside the vocabulary, 0 to"):
        load_tokenizer_folder(folder)


@pytest.mark.parametrize("within", [False, True])
def test_the_post_processor_says_whether_text_begins_with_bos(tmp_path: Path, within: bool) -> None:
    theirs = trained()
    begin = theirs.token_to_id("<|begin|>")
    template = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    theirs.post_processor = processors.Sequence([processors.ByteLevel(), template]) if within else template
    ours = load_tokenizer_folder(saved(tmp_path, theirs))
    assert ours.encode("hello") == theirs.encode("hello").ids
    assert ours.encode("hello")[0] == begin


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        ({"chat_template": "one"}, None, "one"),
        ({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}, None, "d"),
        ({"chat_template": "one"}, "two", "two"),
        ({}, None, None),
    ],
)
def test_chat_templates(tmp_path: Path, settings: dict[str, Any], own: str | None, expected: str | None) -> None:
    folder = saved(tmp_path, trained(), tokenizer_config=settings)
    if own is not None:
        (folder / "chat_template.jinja").write_text(own)
    assert load_tokenizer_folder(folder).chat_template == expected
    (folder / "chat_template.json").write_text('{"chat_template": "three"}')  # the least of the places
    assert load_tokenizer_folder(folder).chat_template == (expected or "three")


@pytest.mark.parametrize("before", [True, False], ids=["with a post-processor", "without"])
@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({"bos_token": "<|begin|>"}, None),
        ({"bos_token": "<|begin|>", "add_bos_token": None}, None),
        ({"bos_token": "<|begin|>", "add_bos_token": True}, True),
        ({"bos_token": "<|begin|>", "add_bos_token": False}, False),
        ({"bos_token": None, "add_bos_token": True}, None),
    ],
)
def test_whether_text_begins_with_bos(tmp_path: Path, before: bool, settings: dict[str, Any], begins: Any) -> None:
    """tokenizer_config.json decides where it says so, as in transformers; else the post-processor."""
    theirs = trained()
    bos = theirs.token_to_id("<|begin|>")
    theirs.post_processor = (
        processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", bos)])
        if before
        else processors.ByteLevel()
    )
    ours = load_tokenizer_folder(saved(tmp_path, theirs, tokenizer_config=settings))
    assert (ours.encode("fox")[0] == bos) == (before if begins is None else begins)


def test_a_template_in_place_of_the_folders(tmp_path: Path) -> None:
    theirs = trained()
    theirs.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    folder = saved(tmp_path, theirs, tokenizer_config={"chat_template": "{{ messages[0].content }}"})
    messages = [{"role": "user", "content": "fox"}]
    ours = load_tokenizer_folder(folder, chat_template="chatml")
    text = "<|im_start|>user\nfox<|im_end|>\n<|im_start|>assistant\n"
    assert ours.encode_chat(messages) == theirs.encode(text).ids
    assert load_tokenizer_folder(folder).encode_chat(messages) == theirs.encode("fox").ids
    with pytest.raises(InvalidRequestError, match="'gemma' writes <start_of_turn>"):
        load_tokenizer_folder(folder, chat_template="gemma")


def test_tokens_of_turns_are_control_tokens_whatever_the_file_calls_them(tmp_path: Path) -> None:
    theirs = trained()
    theirs.add_tokens([AddedToken("<end_of_turn>", special=False, normalized=False)])
    ours = load_tokenizer_folder(saved(tmp_path, theirs))
    end = theirs.token_to_id("<end_of_turn>")
    assert ours.is_special(end)
    assert end in ours.eos_ids
    assert end not in ours.encode("a<end_of_turn>")


def test_a_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, trained())
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja can't be read"):
        load_tokenizer_folder(folder)


def test_added_tokens_without_a_row_are_text(tmp_path: Path) -> None:
    """As Gemma 3's token for images, which its models without images have no row for. With one there is no note."""
    theirs = trained()
    rows = theirs.get_vocab_size()
    theirs.add_special_tokens([AddedToken("<image>", special=True)])
    theirs.add_tokens([AddedToken("<video>", special=False)])
    folder = saved(tmp_path, theirs)
    with pytest.warns(UserWarning, match=r"2 added tokens .* no row for; .* '<image>', '<video>'"):
        ours = load_tokenizer_folder(folder, rows)
    assert ours.vocab_size == rows
    assert ours.notes != ()
    text = "a<image> fox<video>"
    ids = ours.encode(text, parse_special=True, add_bos=False)
    assert max(ids) < rows
    assert ours.decode(ids) == text
    whole = load_tokenizer_folder(folder, rows + 2)
    assert whole.encode(text, parse_special=True, add_bos=False) == theirs.encode(text, add_special_tokens=False).ids
    assert whole.notes == ()


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        load_tokenizer_folder(tmp_path)


@pytest.mark.parametrize("config", [{"vocab_size": 2**40}, [], {"eos_token_id": "x"}])
def test_a_damaged_config_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ModelFileError):
        load_tokenizer_folder(saved(tmp_path, trained(), config=config))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("model"),
        lambda data: data.update(model=3),
        lambda data: data["model"].update(vocab=["a"]),
        lambda data: data["model"]["vocab"].update(a=-1),
        lambda data: data["model"]["vocab"].update(a=2**40),
        lambda data: data["model"]["vocab"].update(zzz=0),
        lambda data: data["model"].update(merges=7),
        lambda data: data.update(added_tokens=[{"id": 1}]),
        lambda data: data["added_tokens"][0].update(content="x" * 257),
        lambda data: data.update(pre_tokenizer="x"),
    ],
)
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, change: Any) -> None:
    folder = saved(tmp_path, trained())
    data = json.loads((folder / "tokenizer.json").read_text())
    change(data)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(ModelFileError):
        load_tokenizer_folder(folder)
