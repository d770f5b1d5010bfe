"""The comparison with peers: who takes part, in which order, and what is worked out of the rounds. Nothing is timed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cutaway.audit.limits import Rate
from cutaway.audit.llama_cpp_process import Arrivals, CannotRunError, Prompts
from cutaway.audit.speed import Workload
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from peers.__main__ import main
from peers.contestants import chosen, contestants
from peers.engines import ENGINES, load
from peers.memory import measure_memory
from peers.rounds import Results, run_rounds
from peers.streaming import Model
from peers.summary import spread, summarise
from peers.table import lines_of
from peers.workloads import MEMORY, ROWS, WORKLOADS, corpus, positions_of, prompts_of
from support.fake_llama_cpp import write_fake_llama_cpp
from support.patience import SECONDS
from support.tiny_llama import TinySizes, tiny_metadata, tiny_tensors, write_gguf

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class Scripted:
    """An engine whose steps take so many seconds each; it can't do what it is told not to."""

    def __init__(self, name: str, seconds: float, calls: list[str], cannot: tuple[int, ...] = ()) -> None:
        self.name, self.seconds, self.calls, self.cannot = name, seconds, calls, cannot

    def measure(self, prompts: Prompts, new_tokens: int) -> Arrivals:
        self.calls.append(self.name)
        if len(prompts) in self.cannot:
            raise CannotRunError(f"no batches\nof {len(prompts)}")
        return [(self.seconds * (step + 1), len(prompts) * (step + 1)) for step in range(new_tokens)]


WORKS = {
    "decode": Workload("decode, one sequence, context 128", 1, 128, 3, "after first"),
    "batch": Workload("decode, 16 sequences, context 128", 16, 128, 3, "after first"),
    "prefill": Workload("prefill of 512 tokens", 1, 512, 1, "prompt"),
}


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peers.rounds.SETTLE_SECONDS", 0.0)


def rounds_of(engines: dict[str, Any], rounds: int = 3) -> Results:
    rates = iter(Rate(1e9 * number, 9e8 * number, 5e8 * number, 5) for number in range(1, rounds + 2))
    return run_rounds(engines, WORKS, lambda work, request: [[request]] * work.sequences, lambda: next(rates), rounds)


@pytest.mark.usefixtures("no_rest")
def test_the_first_engine_rotates_and_the_first_round_warms_up() -> None:
    calls: list[str] = []
    results = rounds_of({name: Scripted(name, 0.5, calls) for name in "abc"})
    turns = ["".join(calls[3 * place : 3 * place + 3]) for place in range(len(calls) // 3)]
    assert turns == ["abc"] * 3 + ["abc"] * 3 + ["bca"] * 3 + ["cab"] * 3
    assert results.rates["decode"] == {name: [2.0] * 3 for name in "abc"}
    assert results.rates["batch"]["a"] == [32.0] * 3
    assert results.rates["prefill"]["a"] == [1024.0] * 3
    assert [rate.best for rate in results.streaming] == [2e9, 3e9, 4e9]  # that of the first round is not kept


@pytest.mark.usefixtures("no_rest")
def test_what_an_engine_can_t_do_is_kept_with_the_reason_and_not_asked_again() -> None:
    calls: list[str] = []
    results = rounds_of({"a": Scripted("a", 0.5, []), "b": Scripted("b", 0.5, calls, cannot=(16,))})
    assert results.cannot == {"decode": {}, "batch": {"b": "no batches\nof 16"}, "prefill": {}}
    assert list(results.rates["batch"]) == ["a"]
    assert len(calls) == 4 * 2 + 1


@pytest.fixture
def report() -> dict[str, Any]:
    """Ours at 1,000, 500 and 250 tokens a second in three rounds; a peer on the same file, one on another file."""
    results = Results(
        streaming=[Rate(1e9, 9e8, 8e8, 5), Rate(2e9, 1e9, 1e9, 5), Rate(1e9, 5e8, 1e8, 5)],
        rates={
            "decode": {"Cutaway": [1000.0, 500.0, 250.0], "same": [250.0] * 3, "other": [300.0] * 3},
            "prefill": {"other": [10.0] * 3},
        },
        cannot={"decode": {"lame": "No module\nnamed 'lame'"}, "prefill": {"Cutaway": "a reason", "same": "b"}},
    )
    return {
        "machine": {"cpu": "CPU", "cores": 2, "load_average_before": 0.25},
        "ours": "Cutaway",
        "model": "m.gguf",
        "model_bytes": 98_400_000,
        "threads": 2,
        "rounds": 3,
        "workloads": {"decode": {"name": "decode, one"}, "prefill": {"name": "prefill"}},
        "summary": summarise(results, "Cutaway", {"Cutaway", "same"}, {"decode": (1_000_000, 1)}),
        "memory": {
            "Cutaway": {"peak_bytes": 300e6, "file_bytes": 100e6, "kv_bytes": 20e6, "beyond": 180e6},
            "same": {"peak_bytes": 90e6, "file_bytes": 100e6, "kv_bytes": 20e6, "beyond": -30e6},
            "lame": {"cannot": "it died"},
        },
    }


def test_ratios_and_the_streaming_limit_are_taken_round_by_round(report: dict[str, Any]) -> None:
    row = report["summary"]["workloads"]["decode"]
    assert row["tokens_per_second"]["Cutaway"] == {"median": 500.0, "min": 250.0, "max": 1000.0}
    assert (row["best_peer"], row["best_peer_on_the_same_file"]) == ("other", "same")
    assert row["ratio_to_peer"]["same"] == {"median": 2.0, "min": 1.0, "max": 4.0}
    # 1 MB a step: 1,000, 2,000 and 1,000 tokens a second at most.
    assert row["of_streaming_limit"]["limit_tokens_per_second"]["median"] == 1000.0
    assert row["of_streaming_limit"]["reached"] == {"median": 0.25, "min": 0.25, "max": 1.0}
    prefill = report["summary"]["workloads"]["prefill"]
    assert (prefill["ratio_to_peer"], prefill["of_streaming_limit"], prefill["best_peer"]) == ({}, None, "other")
    assert prefill["best_peer_on_the_same_file"] is None


def test_the_report_drops_nothing(report: dict[str, Any]) -> None:
    lines = [" ".join(line.split()) for line in lines_of(json.loads(json.dumps(report)))]
    for line in (
        "Cutaway 500.0 [250.0, 1,000.0]",
        "same 250.0 [250.0, 250.0] Cutaway / this: 2.00 [1.00, 4.00] <- best peer on the same file",
        "other 300.0 [300.0, 300.0] Cutaway / this: 1.67 [0.83, 3.33] <- best peer",
        "lame not measured: No module named 'lame'",
        "streaming limit (1.0 MB a step): 1,000.0 [1,000.0, 2,000.0]; Cutaway reaches 25.0 [25.0, 100.0] %",
        "Cutaway not measured: a reason",
        "Cutaway 300.0 = 100.0 + 20.0 + 180.0",
        "same 90.0 = 100.0 + 20.0 - 30.0",
        "lame not measured: it died",
        "streaming read in the same rounds, GB/s: best of a round 1.0 [1.0, 2.0], median of a round 0.9 [0.5, 1.0]",
    ):
        assert line in lines


def test_a_spread_is_median_and_extremes() -> None:
    assert spread([3.0, 1.0, 2.0, 10.0, 4.0]) == {"median": 3.0, "min": 1.0, "max": 10.0}


def test_prompts_begin_differently_in_every_request() -> None:
    ids = corpus(1000)
    assert max(ids) < 1000
    prompts = [
        tuple(prompt)
        for request in range(40)
        for work in WORKLOADS.values()
        for prompt in prompts_of(work, ids, request)
    ]
    openings = {prompt[:8] for prompt in prompts}
    assert len(openings) == 40 * 16  # requests of one number begin alike, and a run has each number once
    work = WORKLOADS["long"]
    assert prompts_of(work, ids, 3) == prompts_of(work, ids, 3)
    assert [len(prompt) for prompt in prompts_of(WORKLOADS["batch"], ids, 0)] == [128] * 16


def test_contestants_are_ours_the_peers_and_peers_on_other_files(tmp_path: Path) -> None:
    model, other = tmp_path / "m.gguf", tmp_path / "m.Q4_0.gguf"
    found = contestants(model, chosen(["openvino", "llama.cpp"]), Path("python"), [("llama.cpp", other)])
    assert [each.name for each in found] == [
        "Cutaway",
        "llama.cpp, C API",
        "llama.cpp, C API, flash attention",
        "llama.cpp, Llama.generate",
        "OpenVINO GenAI",
        "llama.cpp, C API, m.Q4_0.gguf",
        "llama.cpp, C API, flash attention, m.Q4_0.gguf",
        "llama.cpp, Llama.generate, m.Q4_0.gguf",
    ]
    assert [each.is_ours for each in found] == [True] + [False] * 7
    assert {each.python for each in found[1:]} == {Path("python")}
    assert {each.model for each in found[5:]} == {other}
    assert chosen(None) == list(ENGINES)
    assert chosen(["llama.cpp-flash"]) == ["llama.cpp-flash"]
    with pytest.raises(ValueError, match="there is no engine ollama"):
        chosen(["ollama"])


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer of bytes, which ``LLM`` wants."""
    sizes = TinySizes(context_length=2600, vocab_size=258)
    tokenizer = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*BYTE_TO_CHARACTER, "ab", "</s>"],
        "tokenizer.ggml.token_type": [1] * 257 + [3],
        "tokenizer.ggml.merges": ["a b"],
    }
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return write_gguf(path, {**tiny_metadata(sizes), **tokenizer}, tiny_tensors(sizes))


def test_a_step_reads_the_weights_once_and_each_sequence_s_own_keys_and_values(tiny_path: Path) -> None:
    model, sizes = Model.of(tiny_path), TinySizes()
    position = 2 * 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim  # bytes: K and V, of float16
    assert model.kv_bytes(10) == 10 * position
    one = model.step_bytes(Workload("w", 1, 128, 64, "after first"))
    sixteen = model.step_bytes(Workload("w", 16, 128, 64, "after first"))
    embedding_row = model.weight_bytes["token_embd.weight"] // model.config.vocab_size
    # 161 positions are read, one is written.
    assert sixteen - one == 15 * (162 * position + embedding_row)
    weights = one - 162 * position - embedding_row
    assert weights == pytest.approx(sum(model.weight_bytes.values()), rel=0.01)  # the embedding is the head, too


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_is_where_the_table_says(name: str) -> None:
    """Importing its file needs nothing but the standard library, or, of ours, Cutaway."""
    assert callable(load(name))


def test_our_engine_forgets_what_it_was_asked_before(tiny_path: Path) -> None:
    engine = load("cutaway")(tiny_path, 1, 1024)
    ids = [[7 * place % 200 + 3 for place in range(40)]]
    steps: list[int] = []
    step = engine._llm.runner.step
    engine._llm.runner.step = lambda batch: (steps.append(len(batch.tokens)), step(batch))[1]
    for _ in range(2):
        assert [count for _, count in engine.measure(ids, 3)] == [1, 2, 3]
    assert steps == [40, 1, 1] * 2  # never a part of the prompt only
    steps.clear()
    counts = [count for _, count in engine.measure(ids * 16, 3)]
    assert 16 <= counts[0] < 48  # timed from when all have begun
    assert counts == list(range(counts[0], 49))
    assert max(steps) > 40  # together


class Started:
    """A process that has answered."""

    def __init__(self, peak: int | None) -> None:
        self.peak_bytes = peak

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None: ...

    def measure(self, prompts: Prompts, new_tokens: int) -> Arrivals:
        assert (len(prompts), len(prompts[0]), new_tokens) == (1, 512, 64)
        return []


def test_memory_is_told_beside_what_it_must_be(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(bytes(1000))

    class Each:
        def __init__(self, name: str, peak: int | None) -> None:
            self.name, self.peak, self.model = name, peak, file

        def start(self, threads: int, positions: int) -> Started:
            assert (threads, positions) == (2, 576)
            if self.peak == 0:
                raise CannotRunError("it isn't installed")
            return Started(self.peak)

    found = measure_memory([Each("a", 5000), Each("b", 0), Each("c", None)], 2, [1] * 512, 300)  # type: ignore[list-item]
    assert found["a"] == {"peak_bytes": 5000, "file_bytes": 1000, "kv_bytes": 300, "beyond": 3700}
    assert found["b"] == {"cannot": "it isn't installed"}
    assert "doesn't say" in found["c"]["cannot"]


def run(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, with a stand-in for llama.cpp and without the other peers."""
    site = write_fake_llama_cpp(tmp_path / "site")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "peers.py"), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_the_whole_command(tiny_path: Path, tmp_path: Path) -> None:
    """All rows, on a model too short for the last; each engine in its own process."""
    file = tmp_path / "peers.json"
    engines = ("--engines", "llama.cpp", "llama.cpp-generate", "transformers")
    options = ("--rounds", "5", "--threads", "1", "--peer-python", sys.executable, *engines, "--json", str(file))
    done = run(tmp_path, str(tiny_path), *options, "--peer-model", f"llama.cpp-flash={tiny_path}")
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    rows = report["summary"]["workloads"]
    assert set(rows) == set(ROWS) - {MEMORY}
    for row in ("decode", "batch", "prefill"):
        measured, cannot = rows[row]["tokens_per_second"], rows[row]["cannot"]
        assert {"Cutaway", "llama.cpp, C API"} <= set(measured)
        assert "transformers, torch bf16" in {**measured, **cannot}
        assert all(len(rates) == 5 for rates in report["results"]["rates"][row].values())
        assert (rows[row]["of_streaming_limit"] is None) == (row == "prefill")
    assert all("4,128 positions, the model was trained on 2,600" in why for why in rows["long"]["cannot"].values())
    assert len(rows["long"]["cannot"]) == len(report["files"]) == 6
    assert report["memory"]["Cutaway"]["beyond"] > 0
    assert "4,128 positions" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rounds", "4"), "a median needs at least 5"),
        (("--engines", "ollama"), "there is no engine ollama"),
        (("--peer-model", "llama.cpp"), "ENGINE=FILE"),
        (("--peer-model", "llama.cpp=no.gguf"), "the file must be there"),
        (("--rows", "colour"), "invalid choice"),
    ],
)
def test_arguments_are_checked_before_anything_is_started(
    tiny_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py", str(tiny_path), "--peer-python", sys.executable, *options])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert message in capsys.readouterr().err


def test_positions_are_of_all_sequences() -> None:
    assert positions_of(WORKLOADS["batch"]) == 16 * (128 + 32)
