"""Parity beside transformers itself, in an interpreter that has it: every family's folder, and what GGUF files lose."""

import json
import os
from pathlib import Path

import pytest
from command import cutaway

from cutaway.audit.parity.against import Foreign, stand_beside
from cutaway.audit.parity.parity import measure_parity
from cutaway.audit.parity.streams import Streams
from cutaway.engine.runner import ModelRunner
from cutaway.errors import CutawayError
from cutaway.formats.open_model import open_model
from cutaway.model.reference import load_reference
from support.hf_weights import PROMPTS as FOLDER_PROMPTS
from support.saved_folders import SAVED, saved_folder
from support.tiny_families import PROMPTS, write_case

PYTHON = os.environ.get("CUTAWAY_PEERS_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="it needs torch and transformers: make parity")


def beside(path: Path, ids: list[int]) -> Foreign:
    """And every operation keeps to its budget."""
    with open_model(path) as source, ModelRunner(source, threads=2, context=64) as runner:
        streams = Streams(runner.config.num_layers)
        found = measure_parity(runner, load_reference(source)[1], ids, streams=streams)
        assert found.first_over is None
        return stand_beside(path, ids, Path(PYTHON), streams, runner.config)


@pytest.mark.parametrize("case", SAVED)
def test_a_folder_of_every_family(tmp_path: Path, case: str) -> None:
    found = beside(saved_folder(tmp_path / "model", case), FOLDER_PROMPTS[-1])
    assert (found.first_over, found.otherwise) == (None, ())


@pytest.mark.parametrize(
    ("case", "otherwise"), [("llama", ""), ("qwen2", ""), ("mistral", "windows"), ("gemma2", "attention_cap")]
)
def test_what_a_gguf_file_loses_is_named(tmp_path: Path, case: str, otherwise: str) -> None:
    found = beside(write_case(tmp_path / "tiny.gguf", case), PROMPTS["prompt 6"])
    assert (found.first_over is None) == (not otherwise)
    assert [each for each in found.otherwise if each.startswith(otherwise)] or not otherwise, found.otherwise


def test_a_family_that_it_does_not_read_from_gguf(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match=r"smollm3.*folder of safetensors"):
        beside(write_case(tmp_path / "tiny.gguf", "smollm3"), PROMPTS["prompt 6"])


@pytest.mark.usefixtures("smollm2_path")
def test_lines_of_windows_and_signs_of_many_parts(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes("Hello 👋🏽 world 🌍!\r\n\r\nnaïve café — 東京 مرحبا\t👩‍👩‍👧‍👦\u200d\r\n".encode())
    result = cutaway(
        "parity", "smollm2", "--file", str(text), "--against", "transformers", "--python", PYTHON, "--json"
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["first_over"], report["against"]["first_over"]) == (None, None)
