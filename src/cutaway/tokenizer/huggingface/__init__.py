"""Tokenizers of Hugging Face folders: ``tokenizer.json``, and what lies beside it."""

from cutaway.tokenizer.huggingface.folder import load_tokenizer_file, load_tokenizer_folder
from cutaway.tokenizer.huggingface.load import load_tokenizer_json

__all__ = ["load_tokenizer_file", "load_tokenizer_folder", "load_tokenizer_json"]
