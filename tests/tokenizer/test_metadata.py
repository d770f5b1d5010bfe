"""Metadata of the wrong kind: one error that names the key, the kind, what it must be, and the remedy."""

import struct
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizer_cases import spm_metadata, tiny_metadata

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import Cursor
from cutaway.formats.gguf_metadata import StringArray
from cutaway.tokenizer import load_tokenizer


def string_array() -> StringArray:
    data = mmap(-1, 18)
    data.write(struct.pack("<Q1sQ1s", 1, b"a", 1, b"b"))
    return StringArray(Cursor(Path("model.gguf"), data), "metadata 'x'", np.array([0, 9, 18]))


KINDS: dict[str, Any] = {
    "integers": np.array([1, 2], np.int32),
    "floats": np.array([1.0, 2.0], np.float32),
    "booleans": np.array([True, False]),
    "nested": (np.array([1]), np.array([2])),
    "strings": string_array(),
    "list": ["a", 1],
    "int": 1,
    "negative": -1,
    "bool": True,
    "float": 1.0,
    "nan": float("nan"),
    "str": "gpt2",
    "NumPy float": np.float32(1),
    "bytes": b"gpt2",
    "mapping": {"a": 1},
}
TEXT, INTEGER, BOOLEAN = {"str"}, {"int", "negative"}, {"bool"}
KEYS: dict[str, tuple[set[str], str]] = {  # by key: the kinds that are right, and their name
    "model": (TEXT, "text"),
    "pre": (TEXT, "text"),
    "chat_template": (TEXT, "text"),
    "tokens": ({"strings"}, "an array of strings"),
    "merges": ({"strings"}, "an array of strings"),
    "token_type": ({"integers"}, "an array of integers"),
    "add_bos_token": (BOOLEAN, "true or false"),
    "add_eos_token": (BOOLEAN, "true or false"),
    "bos_token_id": (INTEGER, "an integer"),
    "eos_token_id": (INTEGER, "an integer"),
    "eot_token_id": (INTEGER, "an integer"),
    "eom_token_id": (INTEGER, "an integer"),
    "unknown_token_id": (INTEGER, "an integer"),
}
SPM_KEYS: dict[str, tuple[set[str], str]] = {
    "scores": ({"integers", "floats"}, "an array of numbers"),
    "add_space_prefix": (BOOLEAN, "true or false"),
    "remove_extra_whitespaces": (BOOLEAN, "true or false"),
    "precompiled_charsmap": ({"integers"}, "an array of integers"),
}


class ReadKeys(dict[str, Any]):
    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.keys_read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)


def full_name(key: str) -> str:
    return "tokenizer.chat_template" if key == "chat_template" else f"tokenizer.ggml.{key}"


def test_every_key_that_is_read_is_tried_below() -> None:
    keys_read: set[str] = set()
    for values in (tiny_metadata(), spm_metadata({"a": 0.0})):
        metadata = ReadKeys(values)
        load_tokenizer(metadata)
        keys_read |= metadata.keys_read
    assert keys_read - {"general.architecture"} == {full_name(key) for key in KEYS | SPM_KEYS}


@pytest.mark.parametrize(
    ("key", "kind"),
    [(key, kind) for key, (right, _) in (KEYS | SPM_KEYS).items() for kind in KINDS if kind not in right],
)
def test_a_wrong_kind_is_named(key: str, kind: str) -> None:
    value = KINDS[kind]
    with pytest.raises(ModelFileError) as caught:
        load_tokenizer(spm_metadata({"a": 0.0}, **{key: value}) if key in SPM_KEYS else tiny_metadata(**{key: value}))
    name = type(value.item() if isinstance(value, np.generic) else value).__name__
    message = str(caught.value)
    assert message.startswith(f"{full_name(key)} is {name} ")
    assert f"; it must be {(KEYS | SPM_KEYS)[key][1]}. " in message
    assert message.endswith("Convert the model again, or use another file of it.")
    assert len(message) < 300


@pytest.mark.parametrize("key", [key for key in KEYS if key.endswith("_token_id")])
@pytest.mark.parametrize("value", [-1, 261, 2**64, np.int64(-5), np.uint64(2**63)])
def test_an_id_outside_the_vocabulary_is_named(key: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=rf"{key} is {value}; the vocabulary has ids 0 to 260\. Convert"):
        load_tokenizer(tiny_metadata(**{key: value}))


@pytest.mark.parametrize("key", ["tokens", "merges", "token_type", "model"])
def test_a_missing_value_has_a_remedy(key: str) -> None:
    with pytest.raises(ModelFileError, match=rf"tokenizer\.ggml\.{key} is .*\. (Convert|Use) .*\.$"):
        load_tokenizer(tiny_metadata(**{key: None}))


@pytest.mark.parametrize("value", [np.bool_(True), np.int32(2)])
def test_numpy_scalars_count_as_pythons(value: Any) -> None:
    key = "add_bos_token" if isinstance(value, np.bool_) else "eos_token_id"
    tokenizer = load_tokenizer(tiny_metadata(bos_token_id=np.uint32(259), **{key: value}))
    assert (tokenizer.bos_id, tokenizer.add_bos) == (259, isinstance(value, np.bool_))


def test_eos_behind_texts_is_not_done_and_said() -> None:
    with pytest.warns(UserWarning, match=r"tokenizer\.ggml\.add_eos_token.* is not done here"):
        tokenizer = load_tokenizer(tiny_metadata(eos_token_id=260, add_eos_token=True))
    assert ["add_eos_token" in note for note in tokenizer.notes] == [True]
    assert tokenizer.encode("a") == load_tokenizer(tiny_metadata(eos_token_id=260)).encode("a")
    assert load_tokenizer(tiny_metadata(eos_token_id=260, add_eos_token=False)).notes == ()
