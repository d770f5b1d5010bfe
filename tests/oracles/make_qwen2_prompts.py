"""Write `tests/fixtures/qwen2_prompts.json`: ten prompts and their token ids under Qwen2.5-Coder-Instruct.

Comes in: GGUF files of models with this vocabulary. Goes out: one record a prompt (name, text, ids), the chats rendered
from the files' own template. The tokenizer is transformers' own for this family, filled with a file's vocabulary; the
script stops unless the ids decode to the text and are the same for each file.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 transformers gguf
    peers/bin/python tests/oracles/make_qwen2_prompts.py qwen2.5-coder-0.5b-instruct.gguf \\
        qwen2.5-coder-1.5b-instruct.gguf
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
GERMAN = "Der Zug nach München fährt um Viertel vor acht ab, größere Verspätungen sind möglich."
EMOJI = "Weather: 🌧️ in the morning, ⛅ at noon, 🌈 later! Mood: 😀 👩‍👧 👍🏽 🇫🇷"
NUMBERS = "1, 1, 2, 3, 5, 8, 13, 21; 2^10 = 1024; 1,000,000 - 1 ="
JSON = '{"id": 42, "name": "Ada", "nested": {"ok": true, "none": null}, "next": [{"id":'
WEATHER = [{"role": "user", "content": "今天天气怎么样"}]
CHAT = [
    {"role": "system", "content": "You answer in one word."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "北京是哪个国家的首都？"},
]


def prompts_of(gguf: Path) -> list[dict[str, Any]]:
    """The records by one file's vocabulary and template."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    texts = {"english": ENGLISH, "code": CODE, "chinese": CHINESE, "one_token": "Hello"}
    for name, messages in (("weather", WEATHER), ("chat", CHAT)):
        texts[name] = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    texts |= {"german": GERMAN, "emoji": EMOJI, "numbers": NUMBERS, "json": JSON}
    prompts: list[dict[str, Any]] = []
    for name, text in texts.items():
        ids = tokenizer.encode(text, add_special_tokens=False)
        if tokenizer.decode(ids) != text:
            raise SystemExit(f"{gguf.name}, {name}: the ids do not decode to the text")
        prompts.append({"name": name, "text": text, "ids": ids})
        print(f"{name:14} {len(ids):4} tokens")
    return prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ggufs", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=FIXTURES / "qwen2_prompts.json")
    arguments = parser.parse_args()
    prompts, *others = [prompts_of(gguf) for gguf in arguments.ggufs]
    if any(other != prompts for other in others):
        raise SystemExit("the files have different vocabularies or templates")
    fixture = {
        "gguf_sha256": [sha256_of(gguf) for gguf in arguments.ggufs],
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "gguf")},
        "prompts": prompts,
    }
    arguments.output.write_text(json.dumps(fixture, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
