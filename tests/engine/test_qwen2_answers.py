"""The family qwen2 through the engine, on a real file: greedy continuations and an answer in Chinese. Skipped where the
file isn't in the cache.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from support.model_files import require_model

FIXTURES = Path(__file__).parents[1] / "fixtures"
CLEAR = 0.5
"""Nats between the most likely token and the next: less may be decided by int8 activations."""


@pytest.fixture(scope="module")
def qwen2() -> Iterator[LLM]:
    with LLM(require_model("qwen2.5-coder-0.5b-instruct"), max_model_len=256) as llm:
        yield llm


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    listed = json.loads((FIXTURES / "qwen2_prompts.json").read_text())["prompts"]
    return {prompt["name"]: prompt["text"] for prompt in listed}


def test_greedy_continuations_are_those_of_transformers(qwen2: LLM, texts: dict[str, str]) -> None:
    """Token by token, as long as transformers was sure."""
    oracle, compared = np.load(FIXTURES / "qwen2_reference.npz"), 0
    for name in texts:
        if f"{name}.greedy_ids" not in oracle:
            continue
        theirs, margins = oracle[f"{name}.greedy_ids"], oracle[f"{name}.greedy_margin"]
        sure = int(np.append(margins < CLEAR, True).argmax())
        params = SamplingParams(temperature=0, max_tokens=max(1, sure), ignore_eos=True)
        ours = qwen2.generate([oracle[f"{name}.ids"].tolist()], params)[0].outputs[0].token_ids
        assert list(ours)[:sure] == theirs[:sure].tolist(), name
        compared += sure
    assert compared > 10


def test_the_tokenizer_gives_the_ids_of_transformers(qwen2: LLM, texts: dict[str, str]) -> None:
    oracle = np.load(FIXTURES / "qwen2_reference.npz")
    assert qwen2.tokenizer.encode(texts["chinese"]) == oracle["chinese.ids"].tolist()
    assert qwen2.tokenizer.encode(texts["code"]) == oracle["code.ids"].tolist()
    chat = qwen2.tokenizer.encode_chat([{"role": "user", "content": "今天天气怎么样"}])
    assert chat == oracle["weather.ids"].tolist()


def test_a_question_in_chinese_is_answered_in_chinese(qwen2: LLM) -> None:
    chat = qwen2.tokenizer.encode_chat([{"role": "user", "content": "今天天气怎么样"}])
    text = qwen2.generate([chat], SamplingParams(temperature=0, max_tokens=24))[0].outputs[0].text
    assert sum("\u4e00" <= character <= "\u9fff" for character in text) > len(text) / 2, text
