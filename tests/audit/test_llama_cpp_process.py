"""llama.cpp in its own process: the batches that it is given, and the lines that go to and fro."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutaway.audit import llama_cpp_process
from cutaway.audit.llama_cpp_process import CannotRunError, LlamaCpp, StepEngine, peak_bytes
from cutaway.audit.peer_process import PeerProcess, llama_cpp_command
from support.fake_llama_cpp import write_fake_llama_cpp


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, as a module of this process."""
    monkeypatch.syspath_prepend(str(write_fake_llama_cpp(tmp_path / "site")))
    import llama_cpp

    yield llama_cpp
    del sys.modules["llama_cpp"]


def answer_of(prompt: list[int], count: int) -> list[int]:
    """What the stand-in's model says."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(sum(ids) % 97)
    return ids[len(prompt) :]


def test_tokens_go_back_in_at_the_next_position(api: Any) -> None:
    engine = LlamaCpp(Path("model.gguf"), 2)
    assert list(engine.generate([[3, 4, 5]], 4)) == [1, 1, 1, 1]
    first, second, third, _ = answer_of([3, 4, 5], 4)
    expected = [
        [(3, 0, 0, False), (4, 1, 0, False), (5, 2, 0, True)],
        [(first, 3, 0, True)],
        [(second, 4, 0, True)],
        [(third, 5, 0, True)],
    ]
    assert expected == api.STEPS


def test_sequences_share_steps(api: Any) -> None:
    prompts = [[number, 2, 3] for number in range(5)]
    assert list(LlamaCpp(Path("model.gguf"), 1).generate(prompts, 3)) == [5, 5, 5]
    answers = [answer_of(prompt, 3) for prompt in prompts]
    assert [len(step) for step in api.STEPS] == [15, 5, 5]
    for number, step in enumerate(api.STEPS[1:]):
        assert step == [(answer[number], 3 + number, sequence, True) for sequence, answer in enumerate(answers)]
    params = api.CONTEXTS[0].params
    assert (params.n_seq_max, params.n_ctx, params.kv_unified) == (5, 5 * 256, False)


def test_long_prompts_are_cut_into_steps(api: Any) -> None:
    prompts = [[sequence + 1] * 700 for sequence in range(2)]
    assert list(LlamaCpp(Path("model.gguf"), 1).generate(prompts, 2)) == [2, 2]
    assert [len(step) for step in api.STEPS] == [512, 512, 376, 2]
    assert api.STEPS[-1] == [(700 % 97, 700, 0, True), (1400 % 97, 700, 1, True)]


def test_a_request_forgets_the_one_before_and_contexts_grow(api: Any) -> None:
    engine = LlamaCpp(Path("model.gguf"), 3, flash_attention=True)
    for length in (5, 5, 300, 20):
        arrivals = engine.measure([[1] * length], 2)
        assert [count for _, count in arrivals] == [1, 2]
    assert [context.params.n_ctx for context in api.CONTEXTS] == [256, 512]
    assert [context.freed for context in api.CONTEXTS] == [True, False]
    params = api.CONTEXTS[1].params
    assert (params.n_threads, params.n_threads_batch, params.flash_attn_type) == (3, 3, 1)


def test_what_llama_cpp_refuses_is_told(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotRunError, match=r"can't read unreadable\.gguf"):
        LlamaCpp(Path("unreadable.gguf"), 1)
    monkeypatch.setattr(api, "llama_decode", lambda context, batch: 7)
    with pytest.raises(CannotRunError, match="llama_decode returned 7"):
        LlamaCpp(Path("model.gguf"), 1).measure([[1]], 1)
    monkeypatch.setattr(api, "llama_init_from_model", lambda model, params: None)
    with pytest.raises(CannotRunError, match="2 sequences of 256 positions"):
        LlamaCpp(Path("model.gguf"), 1).measure([[1], [2]], 1)


class Short(StepEngine):
    """An engine that stops too early."""

    def info(self) -> dict[str, str]:
        return {}

    def forget(self) -> None: ...

    def generate(self, prompts: Any, new_tokens: int) -> Iterator[int]:
        yield from [len(prompts)] * (new_tokens - 1)


def test_an_engine_that_stops_early_is_not_timed() -> None:
    with pytest.raises(CannotRunError, match="6 tokens came, 8 were asked for"):
        Short().measure([[1], [2]], 4)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system keeps no /proc/self/status")
def test_the_peak_grows_with_what_is_taken() -> None:
    before = peak_bytes()
    assert before is not None
    taken = bytearray(64 << 20)
    taken[::4096] = b"x" * len(taken[::4096])
    after = peak_bytes()
    assert after is not None
    assert after > 48 << 20


def command(tmp_path: Path, model: str = "model.gguf") -> tuple[list[str], dict[str, str]]:
    site = write_fake_llama_cpp(tmp_path / "site")
    return llama_cpp_command(Path(sys.executable), Path(model), 2), {"PYTHONPATH": str(site)}


def test_a_process_answers_until_it_is_closed(tmp_path: Path) -> None:
    line, env = command(tmp_path)
    with PeerProcess("llama.cpp", line, env) as process:
        assert process.info["llama_cpp_python"] == "0.0.1"
        assert process.info["system_info"] == "FAKE = 1 |"
        for prompts in ([[1, 2]], [[1], [2], [3]]):
            arrivals = process.measure(prompts, 3)
            assert [count for _, count in arrivals] == [len(prompts) * step for step in (1, 2, 3)]
            assert [seconds for seconds, _ in arrivals] == sorted(seconds for seconds, _ in arrivals)
        assert process.peak_bytes is None or process.peak_bytes > 1 << 20
        running = process._process
        assert running is not None
    assert running.returncode == 0
    with pytest.raises(CannotRunError, match="has ended"):
        process.measure([[1]], 1)


def test_nothing_of_cutaway_is_needed(tmp_path: Path) -> None:
    """``-S -E``: an interpreter without any package."""
    line, _ = command(tmp_path)
    code = f"import runpy; runpy.run_path({str(llama_cpp_process.__file__)!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    with pytest.raises(CannotRunError, match="No module named 'llama_cpp'"):
        PeerProcess("llama.cpp", [line[0], "-I", "-S", *line[1:]])


def test_a_model_that_can_t_be_read_is_told(tmp_path: Path) -> None:
    line, env = command(tmp_path, "unreadable.gguf")
    with pytest.raises(CannotRunError, match=r"llama\.cpp can't read unreadable\.gguf"):
        PeerProcess("llama.cpp", line, env)


def test_a_refused_request_leaves_the_engine_usable(tmp_path: Path) -> None:
    line, env = command(tmp_path)
    with PeerProcess("llama.cpp", line, env) as process:
        with pytest.raises(CannotRunError, match="IndexError"):
            process.measure([], 3)
        assert len(process.measure([[1]], 3)) == 3


DIES = "import json, sys; print(json.dumps({'info': {}}), flush=True); sys.stdin.readline(); sys.exit(3)"


def test_a_process_that_dies_is_told_of() -> None:
    process = PeerProcess("mortal", [sys.executable, "-c", DIES])
    with pytest.raises(CannotRunError, match="its process ended with code 3"):
        process.measure([[1]], 1)
    with pytest.raises(CannotRunError, match="has ended"):
        process.measure([[1]], 1)
    with pytest.raises(CannotRunError, match="ended with code 5"):
        PeerProcess("stillborn", [sys.executable, "-c", "raise SystemExit(5)"])


def test_answers_are_plain_json(tmp_path: Path) -> None:
    line, env = command(tmp_path)
    asked = json.dumps({"prompts": [[1]], "new_tokens": 2}) + "\n"
    done = subprocess.run(line, input=asked, env=env, capture_output=True, text=True, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert set(first) == {"info"}
    assert set(second) == {"arrivals", "peak_bytes"}
    assert "chatter" in done.stderr
