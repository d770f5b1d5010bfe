"""llama.cpp's slots as the benchmark drives them, over a stand-in for its C API: each request has its own tokens."""

import sys
from pathlib import Path
from typing import Any

import pytest

from support.fake_llama_cpp import write_fake_llama_cpp

MODULUS = 97


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(write_fake_llama_cpp(tmp_path / "site")))
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    import llama_cpp  # type: ignore[import-not-found,unused-ignore]

    return llama_cpp


def alone(prompt: list[int], count: int) -> list[int]:
    """What the stand-in answers to this request: each token is the sum of all before it."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(sum(ids) % MODULUS)
    return ids[len(prompt) :]


@pytest.mark.parametrize("slots", [1, 2, 5, 16])
def test_each_request_has_its_own_answer(fake: Any, slots: int) -> None:
    from peers.engines.llama_cpp_slots import STEP_TOKENS, LlamaCppSlots

    shared = list(range(11))
    prompts = [[*shared, *range(number, number + 1 + 7 * number)] for number in range(13)]
    prompts[4] = list(range(700))  # longer than a step
    prompts[6] = list(prompts[5])  # all of it is there already
    counts = [1 + 5 * number % 7 for number in range(13)]
    found, seconds = LlamaCppSlots(Path("model"), 1, slots, 1024).run(prompts, counts)
    assert found == [alone(prompt, count) for prompt, count in zip(prompts, counts, strict=True)]
    assert seconds > 0
    assert {entry[2] for step in fake.STEPS for entry in step} == set(range(min(slots, len(prompts))))
    assert max(map(len, fake.STEPS)) <= STEP_TOKENS


def test_a_slot_keeps_the_common_beginning(fake: Any) -> None:
    from peers.engines.llama_cpp_slots import LlamaCppSlots

    LlamaCppSlots(Path("model"), 1, 1, 64).run([[1, 2, 3, 4], [1, 2, 3, 9, 9]], [1, 1])
    assert [[(token, position) for token, position, _, _ in step] for step in fake.STEPS] == [
        [(1, 0), (2, 1), (3, 2), (4, 3)],
        [(9, 3), (9, 4)],
    ]
