"""The block formats against the gguf package, bit for bit, and against their formulas by hand."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import ModelFileError
from cutaway.formats.blocks import BLOCK_TYPES, BY_NAME, BlockType, dequantize
from cutaway.formats.gguf import open_gguf

DEFINED = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
DEFINED += ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
HALVES = {"F32": (0, 2), "F16": (0,), "BF16": (0,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
HALVES |= {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}
"""Where 16-bit numbers stand in a block; of those not named, at the beginning."""


def oracle(block_type: BlockType, raw: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(block_type.ggml_type))


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", DEFINED)
def test_random_bytes_give_the_bits_of_the_gguf_package(name: str) -> None:
    block_type = BY_NAME[name]
    rng = np.random.default_rng(7)
    for shape in [(1, 1), (3, 5), (64, 18), (2, 3, 4)]:
        n_bytes = shape[-1] * block_type.bytes_per_block
        raw = rng.integers(0, 256, (*shape[:-1], n_bytes), np.uint8)
        assert_same_bits(dequantize(block_type, raw), oracle(block_type, raw))


@pytest.mark.parametrize("name", DEFINED)
def test_all_16_bit_scales_give_the_bits_of_the_gguf_package(name: str) -> None:
    """Zeros of both signs, denormals, infinities and every NaN among them; also as the minimum, in formats that have
    one.
    """
    block_type = BY_NAME[name]
    rng = np.random.default_rng(8)
    every = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(-1, 2)
    for at in HALVES.get(name, (0,)):
        raw = rng.integers(0, 256, (1 << 16, block_type.bytes_per_block), np.uint8)
        raw[:, at : at + 2] = every
        assert_same_bits(dequantize(block_type, raw), oracle(block_type, raw))


@pytest.mark.parametrize("name", DEFINED)
@settings(max_examples=25, deadline=None)
@given(shape=st.lists(st.integers(0, 3), max_size=3), n_blocks=st.integers(0, 5), seed=st.integers(0, 99))
def test_any_shape_and_any_strides(name: str, shape: list[int], n_blocks: int, seed: int) -> None:
    """A view with strides has the values of its rows read one by one."""
    block_type = BY_NAME[name]
    rng = np.random.default_rng(seed)
    wide = rng.integers(0, 256, (*shape, n_blocks * block_type.bytes_per_block, 2), np.uint8)
    raw = wide[..., 1]
    actual = dequantize(block_type, raw)
    assert actual.shape == (*shape, n_blocks * block_type.block_size)
    for index in np.ndindex(*shape):
        if n_blocks:
            assert_same_bits(actual[index], oracle(block_type, raw[index].copy()))


def half(value: float) -> bytes:
    return struct.pack("<e", value)


LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
SCALES, MINIMA = (1, 2, 63, 4, 5, 16, 47, 63), (63, 0, 7, 9, 33, 62, 1, 48)
SIX_BITS = bytes(
    [scale | upper >> 4 << 6 for scale, upper in zip(SCALES[:4], SCALES[4:], strict=True)]
    + [minimum | upper >> 4 << 6 for minimum, upper in zip(MINIMA[:4], MINIMA[4:], strict=True)]
    + [scale & 15 | (minimum & 15) << 4 for scale, minimum in zip(SCALES[4:], MINIMA[4:], strict=True)]
)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("F32", struct.pack("<3f", 1.5, -2.0, 0.0), [1.5, -2.0, 0.0]),
        ("F16", half(1.5) + half(-65504.0), [1.5, -65504.0]),
        ("BF16", bytes.fromhex("c03f 80c0"), [1.5, -4.0]),
        ("Q8_0", half(0.25) + struct.pack("<32b", *range(-16, 16)), [0.25 * q for q in range(-16, 16)]),
        (
            "Q4_0",  # byte i: q[i] = i below, q[16 + i] = 15 - i above
            half(-2.0) + bytes(i | (15 - i) << 4 for i in range(16)),
            [-2.0 * (q - 8) for q in (*range(16), *range(15, -1, -1))],
        ),
        (
            "Q4_1",
            half(0.5) + half(-3.0) + bytes(i | (15 - i) << 4 for i in range(16)),
            [0.5 * q - 3.0 for q in (*range(16), *range(15, -1, -1))],
        ),
        (
            "Q5_0",  # the fifth bits of q[3] and q[30] are set
            half(0.5) + struct.pack("<I", 1 << 3 | 1 << 30) + bytes(i | (15 - i) << 4 for i in range(16)),
            [0.5 * (q + 16 * (i in (3, 30)) - 16) for i, q in enumerate((*range(16), *range(15, -1, -1)))],
        ),
        (
            "Q5_1",
            half(-0.5) + half(4.0) + struct.pack("<I", 1 << 15 | 1 << 16) + bytes(i | i << 4 for i in range(16)),
            [-0.5 * (i % 16 + 16 * (i in (15, 16))) + 4.0 for i in range(32)],
        ),
        (
            "Q4_K",  # byte i of each 32: even parts have i % 16, odd ones 15 - i % 16
            half(2.0) + half(0.25) + SIX_BITS + bytes(i % 16 | (15 - i % 16) << 4 for i in range(32)) * 4,
            [
                2.0 * SCALES[part] * (15 - i % 16 if part % 2 else i % 16) - 0.25 * MINIMA[part]
                for part in range(8)
                for i in range(32)
            ],
        ),
        (
            "Q5_K",  # weight i of part p has its fifth bit set where i % 8 = p
            half(2.0) + half(0.25) + SIX_BITS + bytes(1 << i % 8 for i in range(32)) + bytes([0x31]) * 128,
            [
                2.0 * SCALES[part] * ((3 if part % 2 else 1) + 16 * (i % 8 == part)) - 0.25 * MINIMA[part]
                for part in range(8)
                for i in range(32)
            ],
        ),
        (
            "Q6_K",  # low bits 5 and 10 in turn of 64, upper bits 0, 1, 2, 3 in turn of 32
            bytes([0xA5]) * 128 + bytes([0b11100100]) * 64 + struct.pack("<16b", *range(-8, 8)) + half(-0.5),
            [-0.5 * (k // 16 - 8) * ((5 if k % 128 < 64 else 10) + 16 * (k % 128 // 32) - 32) for k in range(256)],
        ),
        (
            "Q2_K",  # scale j, minimum 15 - j; q is 0, 1, 2, 3 in turn of 32, and 3, 2, 1, 0 in odd places
            bytes(j | (15 - j) << 4 for j in range(16)) + bytes([0b11100100, 0b00011011]) * 32 + half(2.0) + half(0.5),
            [
                2.0 * (k // 16) * (3 - k % 128 // 32 if k % 2 else k % 128 // 32) - 0.5 * (15 - k // 16)
                for k in range(256)
            ],
        ),
        (
            "Q3_K",  # the third bit of weight i of 32 number p is set where i % 8 = p; scales 3, 7, 11 … 63
            bytes(1 << i % 8 for i in range(32))
            + bytes([0b11100100]) * 64
            + bytes((4 * j + 3) % 16 | (4 * (8 + j) + 3) % 16 << 4 for j in range(8))
            + bytes([0b11100100] * 4)
            + half(0.25),
            [0.25 * (4 * (k // 16) + 3 - 32) * (k % 128 // 32 + 4 * (k % 32 % 8 == k // 32) - 4) for k in range(256)],
        ),
        (
            "IQ4_NL",
            half(-2.0) + bytes(i | (15 - i) << 4 for i in range(16)),
            [-2.0 * LEVELS[q] for q in (*range(16), *range(15, -1, -1))],
        ),
        (
            "IQ4_XS",  # scales 9 j
            half(0.5)
            + struct.pack("<H", sum((9 * j >> 4) << 2 * j for j in range(8)))
            + bytes(9 * 2 * j % 16 | 9 * (2 * j + 1) % 16 << 4 for j in range(4))
            + bytes(i | (15 - i) << 4 for i in range(16)) * 8,
            [0.5 * (9 * j - 32) * LEVELS[q] for j in range(8) for q in (*range(16), *range(15, -1, -1))],
        ),
    ],
)
def test_formula_by_hand(name: str, raw: bytes, expected: list[float]) -> None:
    """Exact in float32, so that the formula of the docstring can be written in Python's numbers."""
    np.testing.assert_array_equal(dequantize(BY_NAME[name], np.frombuffer(raw, np.uint8)), expected)


def test_sizes_are_those_of_the_gguf_package() -> None:
    for ggml_type, (block_size, bytes_per_block) in gguf.GGML_QUANT_SIZES.items():
        ours = BLOCK_TYPES[ggml_type]
        assert ours.name == ggml_type.name
        assert ours.block_size == block_size
        if ours.name == "Q8_1":  # two float16 and 32 bytes in ggml-common.h; the package still has two float32
            bytes_per_block = 2 * 2 + 32
        assert ours.bytes_per_block == bytes_per_block


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - set(DEFINED)))
def test_a_format_without_a_definition_is_named_with_those_that_have_one(name: str) -> None:
    raw = np.zeros((1, BY_NAME[name].bytes_per_block), np.uint8)
    supported = "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16"
    with pytest.raises(ModelFileError, match=rf"{name}\b.*supported are {supported}"):
        dequantize(BY_NAME[name], raw)


@pytest.mark.parametrize(
    "raw",
    [np.zeros(35, np.uint8), np.zeros((2, 33), np.uint8), np.zeros(34, np.int8), np.array(0, np.uint8)],
    ids=["long", "short", "dtype", "scalar"],
)
def test_bytes_that_are_not_whole_blocks_are_refused(raw: np.ndarray) -> None:
    with pytest.raises(ValueError, match="multiple of 34"):
        dequantize(BY_NAME["Q8_0"], raw)


def test_every_tensor_of_smollm2_gives_the_bits_of_the_gguf_package(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as file:
        assert {tensor.block_type.name for tensor in file.tensors.values()} == {"F32", "Q4_1", "Q8_0"}
        for tensor in file.tensors.values():
            actual = dequantize(tensor.block_type, tensor.data)
            assert actual.shape == tensor.shape
            assert_same_bits(actual, oracle(tensor.block_type, tensor.data).reshape(tensor.shape))
