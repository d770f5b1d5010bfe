"""Fixture files, and tiny vocabularies to try things on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER

FIXTURES = Path(__file__).parent / "fixtures"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def template_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((FIXTURES / "chat-templates.json").read_text("utf-8"))["cases"]
    return cases


def tiny_metadata(
    control: tuple[str, ...] = ("<s>", "</s>"), user_defined: tuple[str, ...] = (), **changes: Any
) -> Mapping[str, Any]:
    """All 256 bytes, three merges, then special tokens; `changes` are other values by key, None deletes."""
    merges = ["a b", "ab c", "Ġ a"]
    pieces = [*BYTE_TO_CHARACTER, *(merge.replace(" ", "") for merge in merges), *control, *user_defined]
    types = [NORMAL] * (256 + len(merges)) + [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
    }
    for name, value in changes.items():
        metadata[f"tokenizer.{name}" if name == "chat_template" else f"tokenizer.ggml.{name}"] = value
    return {key: value for key, value in metadata.items() if value is not None}


def spm_metadata(
    scored: Mapping[str, float], special: Mapping[str, int] | None = None, with_bytes: bool = True, **changes: Any
) -> dict[str, Any]:
    """A vocabulary of the SentencePiece kind: special pieces with their types, 256 bytes, then scored pieces."""
    listed = [(piece, kind, 0.0) for piece, kind in (special or {"<unk>": UNKNOWN, "<s>": CONTROL}).items()]
    listed += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)] if with_bytes else []
    listed += [(piece, NORMAL, score) for piece, score in scored.items()]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece for piece, _, _ in listed],
        "tokenizer.ggml.token_type": [kind for _, kind, _ in listed],
        "tokenizer.ggml.scores": [score for _, _, score in listed],
        "tokenizer.ggml.add_bos_token": False,
    }
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}
