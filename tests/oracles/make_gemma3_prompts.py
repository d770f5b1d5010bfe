"""Write `tests/fixtures/gemma3_prompts.json`: ten prompts and their token ids under Gemma-3-270M.

Comes in: the GGUF file, and the texts of `prompts.json`. Goes out: one record a prompt (name, text, ids, which begin
with BOS); one is of exactly 600 tokens, beyond the model's window of 512. The tokenizer is transformers' own for this
family, filled with the file's vocabulary.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 transformers gguf
    peers/bin/python tests/oracles/make_gemma3_prompts.py gemma3-270m.gguf
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oracle_model import FIXTURES, sha256_of
from transformers import AutoTokenizer

SHORT = ("english", "german_french", "chinese", "one_token", "code", "emoji", "numbers", "whitespace", "json")
LONG = ("long", "german_french", "numbers", "code", "json")
LONG_TOKENS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    gguf = parser.parse_args().gguf
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    texts = {each["name"]: each["text"] for each in json.loads((FIXTURES / "prompts.json").read_text())["prompts"]}
    prompts: list[dict[str, Any]] = []

    def add(name: str, text: str, length: int | None = None) -> None:
        ids = [tokenizer.bos_token_id, *tokenizer.encode(text, add_special_tokens=False)][:length]
        if length is not None and len(ids) != length:
            raise SystemExit(f"{name}: the text has only {len(ids)} tokens")
        if length is None and tokenizer.decode(ids[1:]) != text:
            raise SystemExit(f"{name}: the ids do not decode to the text")
        prompts.append({"name": name, "text": text, "ids": ids})
        print(f"{name:14} {len(ids):4} tokens")

    for name in SHORT:
        add(name, texts[name])
    add("beyond_window", "\n\n".join(texts[name] for name in LONG), LONG_TOKENS)
    fixture = {
        "gguf_sha256": sha256_of(gguf),
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "gguf")},
        "prompts": prompts,
    }
    (FIXTURES / "gemma3_prompts.json").write_text(json.dumps(fixture, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
