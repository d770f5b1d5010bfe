"""Taps of the real model, and traces on disk: what is written, what is refused, and what a failure leaves: nothing."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cutaway import LLM, SamplingParams, TapRequest
from cutaway.audit.taps.results import Taps
from cutaway.audit.trace import new_folder, write_safetensors, write_trace
from cutaway.cli.main import app
from cutaway.errors import CapacityError, CutawayError, InvalidRequestError, QueueFullError
from cutaway.formats.safetensors import open_safetensors
from support.bits import differing
from support.patience import SECONDS

PROMPT = "The capital of France is"
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=512, max_tap_bytes="8MiB") as loaded:
        yield loaded


def test_tapped_and_mates_are_as_closed(llm: LLM) -> None:
    """The real model: a tapped request and fifteen others, sampled, with logprobs: all the bits of a closed run."""
    prompts = [PROMPT, *(f"{number} is a number of" + " which" * (7 * number) for number in range(15))]
    params = [SamplingParams(temperature=0.8, seed=each, max_tokens=8, logprobs=3) for each in range(16)]
    closed = [each.outputs for each in llm.generate(prompts, params)]
    llm.reset_prefix_cache()
    steps = []
    step_tapped = llm.runner.step_tapped

    def counted(*arguments: Any) -> Any:
        steps.append(len(arguments[0].tokens))
        return step_tapped(*arguments)

    llm.runner.step_tapped = counted  # type: ignore[method-assign]
    try:
        stream = llm.stream(prompts[0], params[0], taps=TapRequest("layers.*.resid", "layers.7.attn.weights"))
        first = next(stream)
        mates = llm.generate(prompts[1:], params[1:])
        whole = stream.run()
    finally:
        del llm.runner.step_tapped
    assert first.token_ids == closed[0][0].token_ids[:1]
    assert [whole.outputs, *(each.outputs for each in mates)] == closed
    assert len(steps) == 8
    assert sum(steps) == len(whole.prompt_token_ids) + 7, "its rows, and nobody else's"


def test_logits_are_those_that_the_token_was_chosen_from(llm: LLM) -> None:
    output = llm.generate(PROMPT, GREEDY, taps=TapRequest("logits", "layers.29.resid@answer"))[0]
    assert output.taps is not None
    assert output.taps["logits"].values.argmax(1).tolist() == output.outputs[0].token_ids
    assert output.taps["logits"].positions.tolist() == output.taps["layers.29.resid"].positions.tolist()


def test_a_stream_shows_what_came_so_far(llm: LLM) -> None:
    stream = llm.stream(PROMPT, GREEDY, taps=TapRequest("layers.0.resid@generated"))
    next(stream)
    stream.run()
    taps = stream.output().taps
    assert taps is not None
    assert len(taps["layers.0.resid"].positions) == 5


def test_requests_that_are_refused(llm: LLM) -> None:
    for text, message in (
        ("layers.3.atention", r"'atention', and there is no such tensor\. The nearest names are attention,"),
        ("layers.30.resid", r"the layers '30'; the model has 0 to 29\."),
        ("layers.x.resid", r"the layers 'x'"),
        ("layers.5-3.resid", r"the layers '5-3'"),
        ("layers.3.logits", r"logits is outside of them\. Write logits\."),
        (
            "resid@500",
            r"the request has 5 positions of the prompt, 10 with the answer at most: 0 to 9\. Name some of these",
        ),
        ("resid@steps:70", r"selects no position: the request has the steps 0 to 5 at most\. Name some of these"),
        ("resid@answer,step:70-71", r"at 'step:70-71', selects no position: the request has the steps 0 to 5 at most"),
        ("kv.key_scales", r"there is no such tensor"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            llm.generate(PROMPT, GREEDY, taps=TapRequest(text))
    with pytest.raises(InvalidRequestError, match=r"give a cutaway\.TapRequest"):
        llm.generate(PROMPT, GREEDY, taps=["layers.3.resid"])  # type: ignore[arg-type]
    several = r"61,538,304 bytes, 1 tensor with 313 rows together, of 44 positions of each of 8 answers at most"
    with pytest.raises(CapacityError, match=several):
        llm.generate(PROMPT, SamplingParams(n=8, max_tokens=40), taps=TapRequest("logits"))
    with pytest.raises(InvalidRequestError, match=r"give a cutaway\.TapRequest"):
        llm.generate(PROMPT, GREEDY, taps=TapRequest)  # type: ignore[arg-type]
    with pytest.raises(
        CapacityError,
        match=r"up to 39,321,600 bytes, 1 tensor with 200 rows .* \(max_tap_bytes, --max-tap-bytes\) is 8,388,608\.",
    ):
        llm.generate(PROMPT, SamplingParams(max_tokens=200), taps=TapRequest("logits"))
    assert llm.generate(PROMPT, GREEDY)[0].outputs[0].text, "nobody is harmed"


def test_nothing_is_compiled_for_what_is_too_much(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[object] = []
    monkeypatch.setattr("cutaway.audit.taps.watch.prepare_attention_rows", prepared.append)
    taps = TapRequest("layers.*.attn.weights")
    with pytest.raises(CapacityError, match="--max-tap-bytes"):
        llm.stream(PROMPT, SamplingParams(max_tokens=400), taps=taps)
    assert prepared == []
    llm.stream(PROMPT, SamplingParams(max_tokens=2), taps=taps)
    assert prepared == [llm.runner]


@pytest.mark.parametrize("text", ["", "@3", "logits@", "logits@x", "logits@3-", "logits@-3", "logits@1,,2", 3, None])
def test_texts_that_are_no_taps(text: Any) -> None:
    with pytest.raises(InvalidRequestError, match="tap"):
        TapRequest(text)


def test_no_tap() -> None:
    with pytest.raises(InvalidRequestError, match="there is no tap"):
        TapRequest()


def test_many_prompts_whose_taps_don_t_fit_together_take_turns(llm: LLM) -> None:
    """Each would keep 3 MB of the 8 that there are."""
    taps = TapRequest("logits")
    outputs = llm.generate([PROMPT] * 5, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True), taps=taps)
    tokens = [output.outputs[0].token_ids for output in outputs]
    assert tokens == tokens[:1] * 5
    first = llm.stream(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True), taps=taps)
    next(first)
    with pytest.raises(QueueFullError, match="those of other requests"):
        next(llm.stream(PROMPT, GREEDY, taps=TapRequest("logits@all")))
    first.close()


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text("utf-8").splitlines()]


def test_a_trace_has_what_was_tapped(llm: LLM, tmp_path: Path) -> None:
    request = TapRequest("layers.2.attn.weights", "logits", "layers.0-1.attention_input@prompt", "layers.5.kv.keys@3-6")
    output = llm.generate(PROMPT, GREEDY, taps=request)[0]
    assert isinstance(output.taps, Taps)
    with new_folder(tmp_path / "trace") as folder:
        assert not (tmp_path / "trace").exists()
        write_trace(folder, {"text": "…"}, output.taps)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["trace"]
    first, *rows = lines_of(tmp_path / "trace")
    assert first == {"kind": "request", "format": 1, "text": "…"}
    data = (tmp_path / "trace" / "tensors.safetensors").read_bytes()
    written = open_safetensors(tmp_path / "trace" / "tensors.safetensors")
    assert set(written) == set(output.taps)
    for name, tensor in written.items():
        assert tuple(tensor.shape) == output.taps[name].values.shape
        assert tensor.stored.tobytes() == output.taps[name].values.tobytes()
    for line in rows:
        found = output.taps[line["key"]]
        begin, end = line["rows"]
        assert found.positions[begin:end].tolist() == line["positions"]
        array = np.frombuffer(data[slice(*line["bytes"])], line["dtype"]).reshape(line["shape"])
        assert differing(array, found.values[begin:end]) == 0
    assert {line["step"] for line in rows if line["name"] == "logits"} == set(range(6))
    assert sum(line["rows"][1] - line["rows"][0] for line in rows) == sum(
        len(each.positions) for each in output.taps.values()
    )


def test_the_command(smollm2_path: Path, tmp_path: Path) -> None:
    arguments = ["trace", str(smollm2_path), PROMPT, "--raw", "--temperature", "0", "--max-tokens", "6", "--ignore-eos"]
    result = CliRunner().invoke(
        app, [*arguments, "--tap", "layers.*.resid@generated", "--tap", "logits", "-o", str(tmp_path / "t")]
    )
    assert result.exit_code == 0, result.output
    assert "taps: 31 tensors with 156 rows together, of 10 positions at most; 1,525,248 bytes at most" in result.stderr
    first, *rows = lines_of(tmp_path / "t")
    assert first["text"] == result.stdout[:-1]
    assert first["taps"] == ["layers.*.resid@generated", "logits"]
    assert len(rows) == 5 * 30 + 6
    again = CliRunner().invoke(app, [*arguments, "--tap", "logits", "-o", str(tmp_path / "t")])
    assert isinstance(again.exception, InvalidRequestError)
    assert "exists; a trace is never written over" in str(again.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tap", "layers.3.atention"], "nearest names are attention"),
        (
            ["--tap", "logits", "--max-tap-bytes", "1MB", "--max-tokens", "300"],
            "the limit (max_tap_bytes, --max-tap-bytes) is 1,000,000",
        ),
        (["--tap", "logits", "-o", "/proc/here/trace"], "can't be written"),
        ([], "there is no tap"),
    ],
)
def test_commands_that_are_refused(smollm2_path: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    given = ["trace", str(smollm2_path), PROMPT, "--raw", "-o", str(tmp_path / "t"), *arguments]
    result = CliRunner().invoke(app, given)
    assert isinstance(result.exception, CutawayError)
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cutaway.audit.trace.write_safetensors", full)
    with pytest.raises(CutawayError, match="No space left on device"), new_folder(tmp_path / "t") as folder:
        write_trace(folder, {}, Taps([]))
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_nothing(smollm2_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cutaway", "trace", str(smollm2_path), PROMPT, "--raw", "--ignore-eos"]
    command += ["--max-tokens", "400", "--tap", "layers.0.resid", "-o", str(tmp_path / "t")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1), "it answers"
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_safetensors_as_their_description_says(tmp_path: Path) -> None:
    """Byte by byte: https://github.com/huggingface/safetensors#format."""
    arrays = {
        "é": np.arange(6, dtype=np.float32).reshape(2, 3),
        "none": np.zeros((0, 4), np.int8),
        "i": np.array([7], np.int32),
    }
    begins = write_safetensors(tmp_path / "a.safetensors", arrays, {"a": "b"})
    data = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header == {
        "__metadata__": {"a": "b"},
        "é": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "none": {"dtype": "I8", "shape": [0, 4], "data_offsets": [24, 24]},
        "i": {"dtype": "I32", "shape": [1], "data_offsets": [24, 28]},
    }
    assert data[8 + length :] == arrays["é"].tobytes() + arrays["i"].tobytes()
    assert begins == {"é": 8 + length, "none": 8 + length + 24, "i": 8 + length + 24}
