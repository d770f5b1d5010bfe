"""``bench``, ``doctor`` and ``shapes`` from the terminal: text for people, JSON for programs, errors that propagate."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
import typer
from typer.testing import CliRunner, Result

from cutaway.cli.bench import bench
from cutaway.cli.doctor import doctor
from cutaway.cli.shapes import shapes
from cutaway.errors import InvalidRequestError
from support.fake_llama_cpp import write_fake_llama_cpp
from support.tiny_llama import TinySizes, write_tiny_llama


def invoke(command: Callable[..., Any], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


def output(command: Callable[..., Any], *arguments: str) -> str:
    result = invoke(command, *arguments)
    assert result.exception is None, result.exception
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout
    return result.stdout


def test_shapes_shows_symbols_and_numbers(smollm2_path: Path) -> None:
    text = output(shapes, str(smollm2_path), "--context", "64", "--threads", "1")
    assert "[H·Dh, D]    [576, 576]" in text
    assert "Q4_1" in text
    assert "96,576,768 bytes" in text


def test_shapes_as_json(smollm2_path: Path) -> None:
    data = json.loads(output(shapes, str(smollm2_path), "--json", "--context", "64"))
    assert {line["name"]: line["value"] for line in data["dimensions"]}["C"] == 64
    assert data["total_bytes"]["kv"] == 2 * 30 * 3 * 64 * 64 * 2


def test_the_ledger_as_json_and_as_text(smollm2_path: Path) -> None:
    options = (str(smollm2_path), "--only", "ledger", "--threads", "1", "--context", "20", "--prompt", "8")
    data = json.loads(output(bench, *options, "--json"))
    assert set(data) == {"model", "kv_dtype", "limits", "decode", "prefill"}
    assert (data["decode"]["tokens"], data["decode"]["context"]) == (1, 20)
    assert (data["prefill"]["tokens"], data["prefill"]["context"]) == (8, 8)
    for phase in ("decode", "prefill"):
        rates = data[phase]["tokens_per_second"]
        assert 0 < rates["slowest"] <= rates["median"] <= rates["fastest"]
        assert sum(row["seconds"] for row in data[phase]["operations"]) == pytest.approx(data[phase]["timed_seconds"])
    text = output(bench, *options)
    for part in ("Limits of this machine, 1 thread", "Decode: 1 token at context 20", "Prefill: 8 tokens", "gate_up"):
        assert part in text
    assert "Batch:" not in text
    assert "Context:" not in text


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few hundred kilobytes with a context of 300 positions, whose name Rich would take for markup."""
    path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", TinySizes(context_length=300))
    data = path.read_bytes()
    assert data.count(b"\x04\0\0\0\0\0\0\0tiny") == 1
    path.write_bytes(data.replace(b"\x04\0\0\0\0\0\0\0tiny", b"\x04\0\0\0\0\0\0\0[/a]"))
    return path


def test_all_of_bench_as_json(tiny_path: Path) -> None:
    data = json.loads(output(bench, str(tiny_path), "--context", "256", "--prompt", "8", "--json"))
    assert set(data) == {"model", "kv_dtype", "speed", "limits", "decode", "prefill", "batch", "context"}
    tests = data["speed"]["tests"]
    assert [test["name"] for test in tests] == ["pp8", "tg128", "16×tg32"]
    for test in tests:
        assert list(test["tokens_per_second"]) == ["Cutaway"]
        assert len(test["tokens_per_second"]["Cutaway"]) == 5
    assert data["batch"]["context"] == 256
    assert [point["rows"] for point in data["batch"]["points"]] == [1, 2, 4, 8, 16, 32]  # 8,192 positions hold these
    assert [point["context"] for point in data["context"]["points"]] == [1, 64, 128, 256, 300]
    for point in data["batch"]["points"]:
        assert sum(point["seconds"].values()) == pytest.approx(point["timed_seconds"])


def test_parts_of_bench_as_text(tiny_path: Path) -> None:
    text = output(bench, str(tiny_path), "--only", "batch", "--only", "context")
    for part in (
        "Batch: one token in each row, each at context 128, [/a]",
        "\n  64  ",
        "Context: one token, [/a]",
        "300",
    ):
        assert part in text
    assert "Decode:" not in text
    assert "Speed," not in text
    assert invoke(bench, str(tiny_path), "--only", "colour").exit_code == 2


def test_the_speeds_and_the_roofline_as_text(tiny_path: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "roofline.svg"
    text = output(bench, str(tiny_path), "--only", "speed", "--only", "ledger", "--prompt", "40", "--svg", str(drawing))
    for part in ("Speed, tokens a second", "pp40", "tg128", "16×tg32", "Decode:", f"roofline: {drawing}"):
        assert part in text
    assert text.index("Speed,") < text.index("Limits of this machine") < text.index("Decode:")
    circles = [each for each in fromstring(drawing.read_text()).iter() if each.tag.endswith("circle")]
    assert len(circles) > 2 * 10  # operations of two ledgers


def test_llama_cpp_is_measured_in_turn(tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stand-in is found by this interpreter, which is the default."""
    monkeypatch.setenv("PYTHONPATH", str(write_fake_llama_cpp(tmp_path / "site")), prepend=os.pathsep)
    options = (str(tiny_path), "--only", "speed", "--threads", "1", "--prompt", "8", "--against", "llama.cpp")
    data = json.loads(output(bench, *options, "--json"))
    assert data["speed"]["engines"]["llama.cpp"]["llama_cpp_python"] == "0.0.1"
    for test in data["speed"]["tests"]:
        assert [len(rates) for rates in test["tokens_per_second"].values()] == [5, 5]
    text = output(bench, *options, "--peer-python", sys.executable)
    assert "Cutaway / llama.cpp" in text


def test_without_llama_cpp_it_is_said_what_to_install(tiny_path: Path, tmp_path: Path) -> None:
    bare = tmp_path / "python"  # an interpreter that has no packages
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    options = (str(tiny_path), "--only", "speed", "--against", "llama.cpp", "--peer-python")
    result = invoke(bench, *options, str(bare))
    assert isinstance(result.exception, InvalidRequestError)
    for part in ("No module named 'llama_cpp'", str(bare), "pip install llama-cpp-python", "--peer-python"):
        assert part in str(result.exception)
    result = invoke(bench, *options, str(tmp_path / "none"))
    assert isinstance(result.exception, InvalidRequestError)
    assert "can't be run" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "ledger", "--against", "llama.cpp"), "add --only speed"),
        (("--peer-python", "python"), "without --against"),
        (("--only", "batch", "--svg", "x.svg"), "add --only ledger"),
        (("--svg", "no/such/folder/x.svg"), "there is no folder no/such/folder"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tiny_path: Path, options: tuple[str, ...], message: str) -> None:
    result = invoke(bench, str(tiny_path), *options)
    assert isinstance(result.exception, InvalidRequestError)
    assert message in str(result.exception)


def test_one_row_at_a_context_longer_than_the_curve_s_pool(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "long.gguf", TinySizes(num_layers=1, context_length=8209))
    data = json.loads(output(bench, str(path), "--only", "batch", "--context", "8209", "--json"))
    assert [point["rows"] for point in data["batch"]["points"]] == [1]


def test_doctor_as_json_and_as_text() -> None:
    data = json.loads(output(doctor, "--json"))
    assert data["limits"]["threads"] == data["threads"]
    assert data["cache"]["kernels"]
    text = output(doctor)
    assert data["lowering"] in text
    assert data["cache"]["stamp"] in text


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (bench, ("--prompt", "0"), "prompt is 0"),
        (bench, ("--context", "9000"), "context is 9000"),
        (bench, ("--threads", "0"), "threads is 0"),
        (shapes, ("--context", "0"), "context is 0"),
        (shapes, ("--threads", "1000"), "threads is 1000"),
    ],
)
def test_what_can_t_be_done_is_refused_with_its_value(
    smollm2_path: Path, command: Callable[..., Any], options: tuple[str, ...], message: str
) -> None:
    result = invoke(command, str(smollm2_path), *options)
    assert isinstance(result.exception, InvalidRequestError)
    assert message in str(result.exception)
