"""The tokenizer of a model, whatever its files are: of a GGUF by its metadata, of a folder by its ``tokenizer.json``.

In: an open model source. Out: a ``Tokenizer``.
"""

import os

from cutaway.formats.source import ModelSource
from cutaway.tokenizer.huggingface import load_tokenizer_folder
from cutaway.tokenizer.tokenizer import Tokenizer, load_tokenizer


def open_tokenizer(source: ModelSource, chat_template: str | os.PathLike[str] | None = None) -> Tokenizer:
    """Build the tokenizer of an open model. A folder's has a token for each row of the embedding.

    Args:
        source: the model.
        chat_template: in place of its own: a built-in name, the path of a Jinja file, or Jinja source.

    Raises:
        InvalidRequestError: ``chat_template`` is none of these, not valid, or not for this vocabulary.
        ModelFileError: it is missing, malformed, or not supported.
    """
    if not source.path.is_dir():
        return load_tokenizer(source.metadata, chat_template)
    embedding = source.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding is not None and embedding.shape else 0
    return load_tokenizer_folder(source.path, rows, chat_template)
