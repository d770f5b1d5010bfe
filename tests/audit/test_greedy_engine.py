"""Greedy decoding of several sequences together: the tokens of ``LLM``, in as few steps as can be."""

from pathlib import Path

import pytest

from cutaway import LLM, SamplingParams
from cutaway.audit.greedy_engine import GreedyEngine, cut
from cutaway.audit.llama_cpp_process import CannotRunError
from cutaway.engine.runner import ModelRunner
from cutaway.ops.cpu.arrays import Batch, Floats


@pytest.mark.parametrize(
    ("lengths", "most", "steps"),
    [
        ([3], 4, [[(0, 0, 3)]]),
        ([9], 4, [[(0, 0, 4)], [(0, 4, 8)], [(0, 8, 9)]]),
        ([3, 3, 3], 4, [[(0, 0, 3), (1, 0, 1)], [(1, 1, 3), (2, 0, 2)], [(2, 2, 3)]]),
        ([4, 4], 4, [[(0, 0, 4)], [(1, 0, 4)]]),
        ([1] * 5, 512, [[(sequence, 0, 1) for sequence in range(5)]]),
    ],
)
def test_prompts_fill_steps(lengths: list[int], most: int, steps: list[list[tuple[int, int, int]]]) -> None:
    assert list(cut(lengths, most)) == steps


class Watched:
    """A runner whose batches are kept."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self.batches = runner, list[Batch]()

    def __getattr__(self, name: str) -> object:
        return getattr(self._runner, name)

    def step(self, batch: Batch) -> Floats:
        self.batches.append(batch)
        return self._runner.step(batch)


def test_it_gives_the_tokens_of_llm(smollm2_path: Path) -> None:
    prompts = [[100 * sequence + place for place in range(1, 20)] for sequence in range(3)]
    with LLM(smollm2_path, threads=2, max_model_len=256) as llm:
        params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
        expected = [llm.generate([prompt], params)[0].outputs[0].token_ids for prompt in prompts]
        watched = Watched(llm.runner)
        assert list(GreedyEngine(watched).generate(prompts, 5)) == [3] * 5  # type: ignore[arg-type]
    assert [len(batch.tokens) for batch in watched.batches] == [57, 3, 3, 3, 3]
    # Each step's tokens are those that were chosen before it; the last ones are chosen and go nowhere.
    for step, batch in enumerate(watched.batches[1:]):
        assert batch.tokens.tolist() == [answer[step] for answer in expected]
        assert batch.positions.tolist() == [19 + step] * 3


def test_what_the_runner_has_no_room_for_is_refused(runner: ModelRunner) -> None:
    engine = GreedyEngine(runner)  # a context of 64, a pool of as many, 4 rows of logits
    assert list(engine.generate([[1] * 60], 5)) == [1] * 5
    with pytest.raises(CannotRunError, match="1 × 65 positions are asked for; the context has 64"):
        list(engine.generate([[1] * 60], 6))
    with pytest.raises(CannotRunError, match="2 × 33 positions"):
        list(engine.generate([[1] * 32] * 2, 2))
    assert list(engine.generate([[1]] * 4, 16)) == [4] * 16
    with pytest.raises(CannotRunError, match="5 × 2 positions"):
        list(engine.generate([[1]] * 5, 2))
