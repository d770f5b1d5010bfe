"""``cutaway walk`` in Chinese, with a model that speaks it: whole characters, and columns that stay in line."""

import json

from command import cutaway
from rich.cells import cell_len

from support.model_files import require_model

QUESTION = "今天天气怎么样"


def test_a_walk_in_chinese() -> None:
    path = require_model("qwen2.5-coder-0.5b-instruct")
    options = ("--max-tokens", "2", "--temperature", "0", "--no-times", "--raw")
    pages = cutaway("walk", path, QUESTION, *options)
    assert pages.returncode == 0, pages.stderr
    assert "今天" in pages.stdout
    assert "天气" in pages.stdout
    assert max(map(cell_len, pages.stdout.splitlines())) <= 80
    walk = json.loads(cutaway("walk", path, QUESTION, *options, "--json").stdout)
    assert "".join(token["piece"] for token in walk["prompt"]) == QUESTION
    assert walk["text"] in pages.stdout
