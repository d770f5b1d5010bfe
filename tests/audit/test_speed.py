"""Speeds: rates from arrivals, llama-bench's workloads within a model's room, engines in turn."""

import pytest

from cutaway.audit.llama_cpp_process import Arrivals, Prompts
from cutaway.audit.speed import Speed, Workload, measure_speeds, prompts_of, workloads


@pytest.mark.parametrize(
    ("counts", "rate"),
    [("prompt", 2 * 512 / 4.0), ("answer", 6 / 6.0), ("after first", (6 - 2) / (6.0 - 4.0))],
)
def test_a_rate_counts_what_is_measured(counts: str, rate: float) -> None:
    arrivals = [(4.0, 2), (5.0, 4), (6.0, 6)]
    assert Workload("w", 2, 512, 3, counts).rate(arrivals) == pytest.approx(rate)


def test_the_workloads_are_those_of_llama_bench() -> None:
    prompt, answer, together = workloads(512, 8192, 8192)
    assert (prompt.name, prompt.prompt_tokens, prompt.counts) == ("pp512", 512, "prompt")
    assert (answer.name, answer.prompt_tokens, answer.new_tokens, answer.counts) == ("tg128", 1, 128, "answer")
    assert (together.name, together.sequences, together.new_tokens) == ("16×tg32", 16, 32)


@pytest.mark.parametrize(
    ("context", "positions", "names"),
    [
        (100, 8192, ["pp64", "tg100", "16×tg32"]),
        (20, 8192, ["pp64", "tg20", "16×tg20"]),
        (128, 128, ["pp64", "tg128", "4×tg32"]),
        (128, 130, ["pp64", "tg128", "4×tg32"]),
        (33, 48, ["pp64", "tg33", "1×tg32"]),
    ],
)
def test_they_are_shortened_to_the_room(context: int, positions: int, names: list[str]) -> None:
    assert [work.name for work in workloads(64, context, positions)] == names


def test_prompts_differ_and_are_ids_of_the_vocabulary() -> None:
    prompts = prompts_of(Workload("w", 16, 8, 4, "answer"), 211)
    assert [len(prompt) for prompt in prompts] == [8] * 16
    assert len({prompt[0] for prompt in prompts}) == 16
    assert all(0 <= token < 211 for prompt in prompts for token in prompt)


def test_engines_take_turns_and_the_first_rotates() -> None:
    calls: list[tuple[str, int]] = []
    seconds = {"a": 1.0, "b": 4.0}

    def engine(name: str) -> object:
        def measure(prompts: Prompts, new_tokens: int) -> Arrivals:
            calls.append((name, len(prompts)))
            return [(seconds[name] * (step + 1), len(prompts) * (step + 1)) for step in range(new_tokens)]

        return measure

    works = [Workload("one", 1, 2, 3, "answer"), Workload("two", 2, 2, 3, "answer")]
    heard: list[tuple[int, int]] = []
    speeds = measure_speeds(
        {name: engine(name) for name in seconds},  # type: ignore[misc]
        works,
        100,
        3,
        lambda *round: heard.append(round),
    )
    warming, first, second, third = (calls[4 * number : 4 * number + 4] for number in range(4))
    assert warming == first == third == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert second == [("b", 1), ("a", 1), ("b", 2), ("a", 2)]
    assert heard[-1] == (2, 3)
    assert [speed.workload for speed in speeds] == works
    assert speeds[1].rates == {"a": (2.0,) * 3, "b": (0.5,) * 3}
    assert speeds[1].ratios("a", "b") == [4.0] * 3


def test_ratios_are_taken_round_by_round() -> None:
    speed = Speed(Workload("w", 1, 1, 1, "prompt"), {"a": (1.0, 4.0, 9.0), "b": (1.0, 2.0, 3.0)})
    assert speed.ratios("a", "b") == [1.0, 2.0, 3.0]
    assert speed.median("a") == 4.0
    data = speed.as_dict()
    assert (data["name"], data["tokens_per_second"]["b"]) == ("w", [1.0, 2.0, 3.0])
