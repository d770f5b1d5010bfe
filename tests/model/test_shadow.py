"""The shadow check (``support.shadow``) of SmolLM2 and of small random models of each family and block format.

The weights of the shadow are the file's, dequantised; those of the run are tiles. The control flips one bit of one
scale in a tile.
"""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from cutaway.formats.gguf import open_gguf
from cutaway.model.config import ModelConfig
from cutaway.model.loader import LoadedModel, load_model
from cutaway.model.records import Model
from cutaway.model.reference import load_reference
from cutaway.ops.cpu.tiles import TILE_FORMATS
from cutaway.ops.cpu.tiles.q4_1 import SCALE
from support.shadow import BOUNDS, STEPS, Errors, exceeding, shadow_run
from support.tiny_llama import TinySizes, write_tiny_llama


def test_every_operation_of_a_real_run(smollm2: LoadedModel, smollm2_reference: tuple[ModelConfig, Model]) -> None:
    errors = shadow_run(smollm2, smollm2_reference[1], "f16")
    assert_counted(errors, smollm2.config.num_layers)
    assert exceeding(errors) == {}


def test_every_operation_over_an_int8_cache(smollm2: LoadedModel, smollm2_reference: tuple[ModelConfig, Model]) -> None:
    """What is written is the integers and scales by definition; attention is as near to float64 over these as ever."""
    errors = shadow_run(smollm2, smollm2_reference[1], "int8")
    assert_counted(errors, smollm2.config.num_layers)
    assert exceeding(errors) == {}


def assert_counted(errors: Errors, layers: int) -> None:
    """No call was left out."""
    calls = {"matmul": 4 * layers + 1, "quantize_rows": 4 * layers + 1, "norm": 4 * layers + 1}
    calls |= {"rope": layers, "kv_write": layers, "attention": layers, "activate": layers, "add_rows": 2 * layers}
    calls |= {"embed": 1, "rope_angles": 1, "take_rows": 1, "head_norm": layers, "add_positions": 1, "softcap": 1}
    assert {name: len(each) for name, each in errors.items()} == {name: len(STEPS) * n for name, n in calls.items()}


TINY: dict[str, dict[str, Any]] = {
    "qwen2, tied": {"architecture": "qwen2", "formats": ("Q6_K", "Q5_0", "Q4_K", "Q5_1", "Q5_K", "Q8_0", "Q4_1")},
    "qwen2, untied": {"architecture": "qwen2", "formats": ("Q5_0", "Q4_0", "Q8_0"), "tied": False},
    "llama": {"formats": ("Q4_K", "Q6_K", "Q5_0"), "tied": False, "norm_type": "F16"},
    "llama in 2 to 4 bits": {"formats": ("Q2_K", "IQ4_NL", "Q3_K", "IQ4_XS"), "tied": False},
    "llama not quantised": {"formats": ("BF16", "F32", "F16"), "tied": False},
}


@pytest.mark.parametrize("name", TINY)
def test_every_operation_of_a_tiny_model(tmp_path: Path, name: str) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", TinySizes(num_layers=3, width=256, ffn_width=256 * 3), **TINY[name])
    with open_gguf(path) as gguf:
        loaded, (_, exact) = load_model(gguf, threads=2), load_reference(gguf)
    assert set(loaded.formats) == set(TINY[name]["formats"])
    errors = shadow_run(loaded, exact, "f16")
    assert_counted(errors, 3)
    assert exceeding(errors) == {}


def test_tiny_models_have_every_block_format() -> None:
    assert {name for options in TINY.values() for name in options["formats"]} == set(TILE_FORMATS)


def test_one_flipped_bit_of_one_scale_is_caught(
    smollm2: LoadedModel, smollm2_reference: tuple[ModelConfig, Model]
) -> None:
    """The control: the lowest bit of one float16 scale of one block of one row, in a Q4_1 tile of a middle layer. All
    else is right in this run, whose cache is in float32.
    """
    down = smollm2.record.layers[17, 6]
    assert down["tile_bytes"] == smollm2.config.ffn_width // 32 * 320, "not Q4_1"
    lane, block, tile = 5, 20, 3
    address = int(down["tiles"]) + tile * int(down["tile_bytes"]) + block * 320 + SCALE + 2 * lane
    scale = ctypes.c_uint16.from_address(address)
    scale.value ^= 1
    try:
        errors = shadow_run(smollm2, smollm2_reference[1], "f32")
    finally:
        scale.value ^= 1
    caught = [call for call, error in enumerate(errors["matmul"]) if error > BOUNDS["matmul"]]
    a_step = 4 * smollm2.config.num_layers + 1
    assert caught == [17 * 4 + 3, a_step + 17 * 4 + 3], f"matmuls caught: {caught}"
    assert_counted(errors, smollm2.config.num_layers)
    assert set(exceeding(errors)) == {"matmul"}
