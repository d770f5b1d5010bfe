"""``cutaway parity``: the pages, the JSON, the exit code, what is refused."""

import dataclasses
import io
import json
import math
import sys
from pathlib import Path

import pytest
from command import assert_refused, cutaway, cutaway_here
from rich.console import Console

from cutaway.audit.parity.against import Foreign, ForeignRow
from cutaway.audit.parity.parity import EndParity, OperationParity, Parity
from cutaway.cli.parity_tables import parity_dict, parity_pages, verdict
from cutaway.cli.tables import print_whole
from support.long import LONG

GOOD = OperationParity("qkv", 0, 1.5e-7, 1.8e-7, 6e-7, 1e-6, 2e-2, None)
WORSE = dataclasses.replace(GOOD, layer=1, worst=9e-7)
STREAM = OperationParity("ffn_residual", 1, 2e-8, 3e-8, 5e-8, 6e-8, 3e-2, 1.5e-2)
END = EndParity(2e-3, 1e-2, 14, 8e-3, 0.98, 21.97, 21.71)
FOUND = Parity("Tiny", 47, "f16", True, (GOOD, WORSE, STREAM), END)
FOREIGN = Foreign("transformers 5", (ForeignRow("ffn_residual", 0, 4e-7, 1e-5, 9e-3),))


def printed(found: Parity, foreign: Foreign | None, every_layer: bool = False) -> str:
    output = io.StringIO()
    print_whole(Console(file=output, width=140), parity_pages(found, foreign, every_layer))
    return output.getvalue()


def test_each_operation_s_worst_layer_or_all() -> None:
    def lines(text: str) -> list[list[str]]:
        return [line.split()[:5] for line in text.splitlines() if line.startswith("qkv")]

    assert lines(printed(FOUND, None)) == [["qkv", "1", "1.50e-07", "1.80e-07", "9.00e-07"]]
    assert [line[1] for line in lines(printed(FOUND, None, every_layer=True))] == ["0", "1"]


def test_the_first_over_is_named() -> None:
    over = dataclasses.replace(FOUND, operations=(GOOD, dataclasses.replace(WORSE, worst=2e-6), STREAM))
    assert "OVER: qkv of layer 1 is the first operation beyond its budget: 2.00e-06, allowed are 1.00e-06." in verdict(
        over, None
    )
    assert parity_dict(over, None)["first_over"] == {"name": "qkv", "layer": 1}
    nan = dataclasses.replace(FOUND, operations=(dataclasses.replace(GOOD, worst=math.nan), WORSE, STREAM))
    assert parity_dict(nan, None)["first_over"] == {"name": "qkv", "layer": 0}
    json.dumps(parity_dict(nan, None), allow_nan=False)
    assert "Every operation keeps to its budget." in verdict(FOUND, None)
    assert any(
        "bits" in line and line.startswith("OVER")
        for line in verdict(dataclasses.replace(FOUND, same_bits=False), None)
    )


def test_beside_transformers() -> None:
    assert "within its float32" in verdict(FOUND, FOREIGN)[-1]
    far = Foreign("transformers 5", (dataclasses.replace(FOREIGN.rows[0], definition=1e-3),))
    assert verdict(FOUND, far)[-1].startswith("OVER: after ffn_residual of layer 0 the definition is not")
    assert "9.00e-03" in printed(FOUND, far)
    told = verdict(FOUND, dataclasses.replace(far, otherwise=("windows is 0 there, 29 here",)))
    assert told[-1] == "It reads the file otherwise: windows is 0 there, 29 here."
    assert parity_dict(FOUND, far)["against"]["first_over"] == {"name": "ffn_residual", "layer": 0}


def test_where_it_grows() -> None:
    (line,) = (line for line in printed(FOUND, None).splitlines() if line.startswith("layer 1"))
    assert line.split()[:5] == ["layer", "1", "3.00e-02", "1.50e-02", "2.00"]
    assert line.split()[5] == "█" * 40


@pytest.mark.skipif(not LONG, reason="it runs SmolLM2 in float64: CUTAWAY_LONG_TESTS=1")
def test_a_run_as_json() -> None:
    result = cutaway("parity", "smollm2", "--text", "A few words.", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["same_bits"]
    assert report["first_over"] is None
    assert report["operations"][0]["name"] == "embed"
    assert report["tokens"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--python", "python3"), "--against transformers"),
        (("--text", "a", "--file", "b"), "give one of them"),
        (("--file", "nowhere.txt"), "can't be read"),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert_refused(cutaway_here(monkeypatch, capsys, "parity", "smollm2", *arguments), 2, said)


@pytest.mark.parametrize(("there", "missing"), [((), "torch"), (("torch",), "transformers")])
def test_libraries_are_looked_for_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    smollm2_path: Path,
    tmp_path: Path,
    there: tuple[str, ...],
    missing: str,
) -> None:
    """An interpreter of this kind, whose packages are these."""
    for name in there:
        (tmp_path / f"{name}.py").touch()
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{tmp_path}' exec '{sys.executable}' -S \"$@\"\n")
    python.chmod(0o755)
    monkeypatch.setattr("cutaway.engine.llm.LLM.__init__", lambda *_, **options: pytest.fail("the model is loaded"))
    result = cutaway_here(
        monkeypatch, capsys, "parity", str(smollm2_path), "--against", "transformers", "--python", str(python)
    )
    stage, error = result.stderr.splitlines()
    assert stage == "looking for torch and transformers …"
    assert error.startswith(f"error: {missing} is not installed in {python}. Install")
    assert "pip install torch transformers gguf" in error
    assert (result.stdout, result.returncode) == ("", 2)
