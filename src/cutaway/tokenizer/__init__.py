"""Text ↔ ids, and chat messages → ids."""

from cutaway.tokenizer.detokenize import StreamingDetokenizer
from cutaway.tokenizer.open_tokenizer import open_tokenizer
from cutaway.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["StreamingDetokenizer", "Tokenizer", "load_tokenizer", "open_tokenizer"]
