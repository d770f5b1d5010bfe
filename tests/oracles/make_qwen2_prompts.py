"""Write `tests/fixtures/qwen2_prompts.json`: a few prompts and their token ids under Qwen2.5-Coder-0.5B-Instruct.

Comes in: the GGUF file. Goes out: one record a prompt (name, text, ids), the chats rendered from the file's own
template. The tokenizer is transformers' own for this family, filled with the file's vocabulary; the script stops unless
the ids decode to the text.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 transformers gguf
    peers/bin/python tests/oracles/make_qwen2_prompts.py qwen2.5-coder-0.5b-instruct.gguf
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oracle_model import FIXTURES, sha256_of
from transformers import AutoTokenizer

ENGLISH = "The lighthouse keeper climbed the stairs every evening, and every time she counted the steps:"
CODE = '''def merge_sorted(left: list[int], right: list[int]) -> list[int]:
    """Merge two sorted lists into one."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):'''
CHINESE = "今天天气很好，我们一起去公园散步。春天来了，花开了，鸟儿在树上唱歌，孩子们在湖边放风筝。"
WEATHER = [{"role": "user", "content": "今天天气怎么样"}]
CHAT = [
    {"role": "system", "content": "You answer in one word."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "北京是哪个国家的首都？"},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--output", type=Path, default=FIXTURES / "qwen2_prompts.json")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.gguf.parent, gguf_file=arguments.gguf.name)
    texts = {"english": ENGLISH, "code": CODE, "chinese": CHINESE, "one_token": "Hello"}
    for name, messages in (("weather", WEATHER), ("chat", CHAT)):
        texts[name] = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompts: list[dict[str, Any]] = []
    for name, text in texts.items():
        ids = tokenizer.encode(text, add_special_tokens=False)
        if tokenizer.decode(ids) != text:
            raise SystemExit(f"{name}: the ids do not decode to the text")
        prompts.append({"name": name, "text": text, "ids": ids})
        print(f"{name:14} {len(ids):4} tokens")
    fixture = {
        "gguf_sha256": sha256_of(arguments.gguf),
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "gguf")},
        "prompts": prompts,
    }
    arguments.output.write_text(json.dumps(fixture, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
