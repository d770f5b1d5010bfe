"""The tokenizer of a Hugging Face folder: ``tokenizer.json`` with the roles that the files beside it declare.

In: a folder with ``tokenizer.json`` and, where there are any, ``tokenizer_config.json``, ``special_tokens_map.json``,
``config.json``, ``generation_config.json``, ``chat_template.jinja`` or ``.json``. Out: a ``Tokenizer``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cutaway.errors import ModelFileError
from cutaway.formats.json_file import read_json_if_there, read_small
from cutaway.tokenizer.huggingface.load import Roles, load_tokenizer_json
from cutaway.tokenizer.template_source import MAX_SOURCE
from cutaway.tokenizer.tokenizer import Tokenizer

LARGEST_TOKENIZER: Final = 128 << 20
"""Bytes; tokenizers of a quarter of a million tokens have 33 MB."""
_BYTES_A_CHARACTER: Final = 4  # of UTF-8, at most


def load_tokenizer_folder(
    folder: Path, rows: int = 0, chat_template: str | os.PathLike[str] | None = None
) -> Tokenizer:
    """Build the tokenizer of a folder. The ids that end a turn are all that any of its files declares.

    Args:
        folder: with ``tokenizer.json``.
        rows: of the model's embedding, of which the last may have no token; 0: as many as ``config.json`` says.
        chat_template: in place of the folder's own, as ``load_tokenizer`` takes it.

    Raises:
        ModelFileError: ``tokenizer.json`` is missing, or a file is malformed or not supported.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(
            f"{folder} has no tokenizer.json. Convert its tokenizer with transformers (AutoTokenizer, "
            "save_pretrained), or use a GGUF file of the model."
        )
    return load_tokenizer_file(path, rows, chat_template)


def load_tokenizer_file(path: Path, rows: int = 0, chat_template: str | os.PathLike[str] | None = None) -> Tokenizer:
    """Build the tokenizer of a ``tokenizer.json``, with the roles that the files beside it declare. The other arguments
    are those of ``load_tokenizer_folder``.

    Raises:
        ModelFileError: it can't be read, or a file is malformed or not supported.
    """
    text = read_small(path, LARGEST_TOKENIZER)
    roles = read_roles(path.parent)
    return load_tokenizer_json(text, roles._replace(vocab_size=rows) if rows else roles, chat_template)


def read_roles(folder: Path) -> Roles:
    """What the files beside ``tokenizer.json`` say.

    Raises:
        ModelFileError: a file is no JSON object, or has a value of the wrong kind.
    """
    config = read_json_if_there(folder / "config.json")
    tokenizer_config = read_json_if_there(folder / "tokenizer_config.json")
    named = read_json_if_there(folder / "special_tokens_map.json") | tokenizer_config
    generation = read_json_if_there(folder / "generation_config.json")
    eos_ids = [*_ids(config.get("eos_token_id")), *_ids(generation.get("eos_token_id"))]
    size, add_bos = config.get("vocab_size"), tokenizer_config.get("add_bos_token")
    return Roles(
        bos=_text(named.get("bos_token")),
        eos=_text(named.get("eos_token")),
        eos_ids=tuple(dict.fromkeys(eos_ids)),
        chat_template=_chat_template(folder, tokenizer_config),
        vocab_size=size if isinstance(size, int) else 0,
        add_bos=add_bos if isinstance(add_bos, bool) else None,
    )


def _text(token: Any) -> str | None:
    """A token's text, given as text or as an object with ``content``."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _ids(value: Any) -> list[int]:
    """One id, several or none."""
    if value is None:
        return []
    ids = value if isinstance(value, list) else [value]
    if not all(type(each) is int for each in ids):
        raise ModelFileError(f"eos_token_id is {str(value)[:80]}; it must be a whole number or a list of them.")
    return ids


def _chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """The template's own file, else the one of the configuration; of several there, the one named ``default``. Some
    older folders have it in a file ``chat_template.json``.
    """
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_small(path, _BYTES_A_CHARACTER * MAX_SOURCE).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{path} can't be read ({error}). Fetch the model again.") from error
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, Mapping) and each.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if template is None:
        template = read_json_if_there(folder / "chat_template.json").get("chat_template")
    return template if isinstance(template, str) else None
