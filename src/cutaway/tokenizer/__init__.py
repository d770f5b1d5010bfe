"""Text ↔ ids, and chat messages → ids."""

from cutaway.tokenizer.detokenize import StreamingDetokenizer
from cutaway.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["StreamingDetokenizer", "Tokenizer", "load_tokenizer"]
