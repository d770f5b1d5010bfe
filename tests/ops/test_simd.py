"""Every word of the SIMD vocabulary against NumPy or exact arithmetic, over edge values, for one row and several."""

import itertools
import re
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from cutaway.ops import simd
from cutaway.ops.kernel_cache import kernel, root_jit
from cutaway.ops.simd import processor, registers
from support.bits import assert_same_floats, differing
from support.exact import nearest_float32
from support.machines import CONTROL_BITS, FLUSH_TO_ZERO

F32, I32, U8 = np.float32, np.int32, np.uint8
LANES = 16

EDGE_FLOATS = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.5, 0.49999997, 8388607.5, 8388608.0, 16777216.0),
        *(np.inf, -np.inf, np.nan, np.finfo(F32).max, np.finfo(F32).min, np.finfo(F32).tiny, np.finfo(F32).eps),
        *(1e-45, -1e-45, 1.1754942e-38, 3e-39, 1.0000001, -1.9999999, 1e10, -3.3e-20, np.pi),
    ],
    F32,
)
EDGE_INTS = np.array(
    [
        0,
        1,
        -1,
        2,
        15,
        16,
        127,
        -128,
        255,
        2**24 + 1,
        2**24 + 3,
        2**25 + 2,
        -(2**24) - 1,
        2**31 - 1,
        -(2**31),
        123456789,
    ],
    I32,
)

FLOAT_WORDS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, np.add),
    "sub": (2, np.subtract),
    "mul": (2, np.multiply),
    "div": (2, np.divide),
    "sqrt": (1, np.sqrt),
    "absolute": (1, np.abs),
    "round_even": (1, np.rint),
    "maximum": (2, lambda x, y: np.where(x > y, x, y)),  # the second wins ties and NaN
    "minimum": (2, lambda x, y: np.where(x < y, x, y)),
}
INT_WORDS: dict[str, Callable[..., Any]] = {
    "add_int": np.add,
    "sub_int": np.subtract,
    "mul_int": np.multiply,
    "xor_int": np.bitwise_xor,
    "and_uint": np.bitwise_and,
    "mul_high_uint": lambda x, y: (
        ((x.view(np.uint32).astype(np.uint64) * y.view(np.uint32).astype(np.uint64)) >> np.uint64(32))
        .astype(np.uint32)
        .view(I32)
    ),
}


def lanewise(word: Any, operands: int, load: Any, store: Any, result: type) -> Callable[..., npt.NDArray[Any]]:
    """A NumPy function that sends whole arrays through a word of ``operands`` vectors, 16 lanes at a time."""
    if operands == 1:

        @numba.njit
        def run(x: int, y: int, z: int, out: int) -> None:
            store(out, word(load(x)))
    elif operands == 2:

        @numba.njit
        def run(x: int, y: int, z: int, out: int) -> None:
            store(out, word(load(x), load(y)))
    else:

        @numba.njit
        def run(x: int, y: int, z: int, out: int) -> None:
            store(out, word(load(x), load(y), load(z)))

    def apply(*arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
        count = arrays[0].size
        padded = [np.ascontiguousarray(np.resize(array, -(-count // LANES) * LANES)) for array in arrays]
        out = np.zeros(padded[0].size, result)
        sources = [*padded, *padded[:1] * (3 - len(padded))]
        for i in range(0, 4 * out.size, 4 * LANES):
            run(*(int(array.ctypes.data) + i for array in sources), int(out.ctypes.data) + i)
        return out[:count]

    return apply


def pairs(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """All pairs of the values."""
    return np.repeat(values, values.size), np.tile(values, values.size)


@pytest.mark.parametrize("name", FLOAT_WORDS)
def test_float_words_are_single_ieee_operations(name: str) -> None:
    operands, expected = FLOAT_WORDS[name]
    word = lanewise(getattr(simd, name), operands, simd.load, simd.store, F32)
    arrays = pairs(EDGE_FLOATS)[:operands]
    noise = np.random.default_rng(0).standard_normal((operands, 999)).astype(F32)
    with np.errstate(all="ignore"):
        assert_same_floats(word(*arrays), expected(*arrays).astype(F32))
        assert_same_floats(word(*noise), expected(*noise).astype(F32))


def test_fma_rounds_once() -> None:
    word = lanewise(simd.fma, 3, simd.load, simd.store, F32)
    finite = EDGE_FLOATS[np.isfinite(EDGE_FLOATS)]
    triples = list(itertools.product(finite[::2], finite[1::3], finite[::3]))
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((300, 3)).astype(F32)
    cancelling = noise.copy()
    cancelling[:, 2] = -(noise[:, 0] * noise[:, 1])  # what is left is the product's own rounding error
    x, y, z = np.concatenate([np.array(triples, F32), noise, cancelling]).T.copy()
    got = word(x, y, z)
    exact = [Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)) for a, b, c in zip(x, y, z, strict=True)]
    expected = np.array([nearest_float32(value) for value in exact], F32)
    assert np.array_equal(got, expected)
    assert np.count_nonzero(got[-300:]) > 250, "the cases don't tell a fused operation from two"


@pytest.mark.parametrize("name", INT_WORDS)
def test_integer_words_wrap(name: str) -> None:
    word = lanewise(getattr(simd, name), 2, simd.load_int, simd.store_int, I32)
    x, y = pairs(EDGE_INTS)
    assert differing(word(x, y), INT_WORDS[name](x, y)) == 0


def test_a_shift_to_the_right_brings_in_zeros() -> None:
    word = lanewise(simd.shift_right, 2, simd.load_int, simd.store_int, I32)
    x, n = np.repeat(EDGE_INTS, 32), np.tile(np.arange(32, dtype=I32), EDGE_INTS.size)
    assert differing(word(x, n), (x.view(np.uint32) >> n.view(np.uint32)).view(I32)) == 0


def test_conversions() -> None:
    ints = np.concatenate([EDGE_INTS, np.random.default_rng(2).integers(-(2**31), 2**31, 999).astype(I32)])
    floats = np.concatenate([EDGE_FLOATS[np.abs(EDGE_FLOATS) < 2**31], np.linspace(-300, 300, 999, dtype=F32)])
    assert_same_floats(lanewise(simd.to_float, 1, simd.load_int, simd.store, F32)(ints), ints.astype(F32))
    assert (
        differing(lanewise(simd.to_int, 1, simd.load, simd.store_int, I32)(floats), np.trunc(floats).astype(I32)) == 0
    )
    as_float = lanewise(simd.bits_as_float, 1, simd.load_int, simd.store, F32)(ints)
    assert differing(as_float, ints.view(F32)) == 0
    as_int = lanewise(simd.bits_as_int, 1, simd.load, simd.store_int, I32)(EDGE_FLOATS)
    assert differing(as_int, EDGE_FLOATS.view(I32)) == 0
    exponents = np.arange(-126, 128, dtype=I32)
    powers = lanewise(simd.power_of_two, 1, simd.load_int, simd.store, F32)(exponents)
    assert_same_floats(powers, np.ldexp(F32(1), exponents))
    shifted = (F32(1.5 * 2**23) + exponents.astype(F32)).view(I32)  # as ``exp`` has them
    assert_same_floats(lanewise(simd.power_of_two, 1, simd.load_int, simd.store, F32)(shifted), powers)


def test_words_act_on_every_row_and_repeat_a_single_one() -> None:
    @numba.njit
    def run(rows: int, stride: int, one: int, out: int, out_stride: int) -> None:
        three = simd.load_rows(rows, stride, 3)
        simd.store_rows(out, out_stride, simd.fma(three, simd.load(one), three))

    source = np.random.default_rng(3).standard_normal((3, 23)).astype(F32)
    one = np.random.default_rng(4).standard_normal(LANES).astype(F32)
    out = np.zeros((3, 29), F32)
    run(source.ctypes.data, source.strides[0], one.ctypes.data, out.ctypes.data, out.strides[0])
    expected = [
        [nearest_float32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(x))) for x, y in zip(row, one)]  # noqa: B905
        for row in source
    ]
    assert np.array_equal(out[:, :LANES], np.array(expected, F32))
    assert not out[:, LANES:].any(), "a store wrote past its 16 lanes"


def test_rows_of_integers_are_loaded() -> None:
    """Values that are no float32, at a stride that is no multiple of a vector."""

    @numba.njit
    def run(rows: int, stride: int, out: int) -> None:
        three = simd.load_rows_int(rows, stride, 3)
        simd.store_rows(out, 64, simd.bits_as_float(simd.add_int(three, simd.splat_int(1))))

    source = np.random.default_rng(10).integers(-(2**31), 2**31 - 1, (3, 19)).astype(I32)
    out = np.zeros((3, LANES), I32)
    run(source.ctypes.data, source.strides[0], out.ctypes.data)
    assert np.array_equal(out, source[:, :LANES] + 1)


# Words that cross lanes


def float_scalar(word: Any) -> Callable[[npt.NDArray[Any]], np.float32]:
    @numba.njit
    def run(x: int, out: int) -> None:
        simd.store_scalar(out, word(simd.load(x)))

    def apply(x: npt.NDArray[Any]) -> np.float32:
        out = np.zeros(1, F32)
        run(x.ctypes.data, out.ctypes.data)
        return F32(out[0])

    return apply


def halving_tree(x: npt.NDArray[Any], combine: Callable[..., Any]) -> Any:
    """Lane i with lane i + half, for halves of 8, 4, 2, 1."""
    for half in (8, 4, 2, 1):
        x = combine(x[:half], x[half : 2 * half])
    return x[0]


def test_lane_sum_is_the_documented_tree() -> None:
    rng = np.random.default_rng(5)
    word = float_scalar(simd.lane_sum)
    other_orders = 0
    for _ in range(200):
        x = (rng.standard_normal(LANES) * 10.0 ** rng.integers(-6, 6, LANES)).astype(F32)
        expected = halving_tree(x, np.add)
        assert word(x) == expected
        pairwise = x
        while pairwise.size > 1:
            pairwise = pairwise[0::2] + pairwise[1::2]
        sequential = F32(0)
        for value in x:
            sequential += value
        other_orders += bool(pairwise[0] != expected and sequential != expected)
    assert other_orders > 50, "the inputs don't tell this tree from other orders"


def test_lane_max_and_integer_sum() -> None:
    rng = np.random.default_rng(6)
    word = float_scalar(simd.lane_max)
    for place in range(LANES):
        x = -np.abs(rng.standard_normal(LANES)).astype(F32) - F32(2)
        x[place] = -1.0
        assert word(x) == F32(-1.0)
    assert word(np.full(LANES, -np.inf, F32)) == -np.inf

    @numba.njit
    def run(x: int) -> int:
        return simd.lane_sum_int(simd.load_int(x))

    for ints in rng.integers(-(2**31), 2**31, (20, LANES)).astype(I32):
        assert run(ints.ctypes.data) == ints.sum(dtype=I32)


def test_integer_maxima() -> None:
    @numba.njit
    def run(x: int, y: int, out: int) -> int:
        larger = simd.maximum_int(simd.load_int(x), simd.load_int(y))
        simd.store_int(out, larger)
        return simd.lane_max_int(larger)

    rng = np.random.default_rng(8)
    for x, y in rng.integers(-(2**31), 2**31, (20, 2, LANES)).astype(I32):
        out = np.zeros(LANES, I32)
        assert run(x.ctypes.data, y.ctypes.data, out.ctypes.data) == max(x.max(), y.max())
        assert np.array_equal(out, np.maximum(x, y))


@pytest.mark.parametrize("first", [-5, 0, 1, 7, 15, 16, 40])
@pytest.mark.parametrize("end", [-3, 0, 1, 7, 15, 16, 40])
def test_keep_lanes_keeps_what_lies_between(first: int, end: int) -> None:
    @numba.njit
    def run(x: int, low: int, high: int, out: int) -> None:
        simd.store(out, simd.keep_lanes(simd.load(x), low, high, np.float32(-7.5)))

    kept = [first <= lane < end for lane in range(LANES)]
    x = np.where(kept, np.arange(LANES, dtype=F32), F32(np.nan))
    out = np.zeros(LANES, F32)
    run(x.ctypes.data, first, end, out.ctypes.data)
    assert out.tolist() == [lane if kept[lane] else -7.5 for lane in range(LANES)]


def test_constants_and_splats() -> None:
    @numba.njit
    def run(out: int, source: int, number: int) -> None:
        simd.store(out, simd.splat(np.float32(-0.1)))
        simd.store_int(out + 64, simd.splat_int(number))
        simd.store_int(out + 128, simd.lane_index())
        simd.store_rows(out + 192, 64, simd.zeros(2))
        simd.store_rows(out + 320, 64, simd.splat_rows(source, 12, 2))
        simd.store_rows(out + 448, 64, simd.to_float(simd.splat_rows_int(source + 24, 4, 2)))
        simd.store_rows(out + 576, 64, simd.to_float(simd.zeros_int(2)))
        simd.store_rows(out + 704, 64, simd.to_float(simd.splat_rows_int8(source + 5, 2, 2)))

    out = np.full((13, LANES), np.nan, F32)
    source = np.array([1.5, 0, 0, -2.25, 0, 0, 0, 0], F32)
    source[6:].view(I32)[:] = (-77, 9)
    source.view(np.int8)[5:8] = (-128, 55, 127)
    run(out.ctypes.data, source.ctypes.data, (5 << 32) - 3)
    assert (out[0] == F32(-0.1)).all()
    assert (out[1].view(I32) == -3).all()
    assert np.array_equal(out[2].view(I32), np.arange(LANES))
    assert np.array_equal(
        out[3:], np.repeat(np.array([0, 0, 1.5, -2.25, -77, 9, 0, 0, -128, 127], F32), LANES).reshape(10, LANES)
    )


# The integer dot product


def dot(word: Any, m: int) -> Callable[..., npt.NDArray[Any]]:
    """accumulator [m, 16] int32, unsigned [64] uint8, signed [m, stride] int8 → [m, 16] int32, through int32 stores."""

    @numba.njit
    def run(accumulator: int, unsigned: int, signed: int, stride: int, out: int) -> None:
        total = simd.zeros_int(m)
        total = simd.add_int(total, simd.bits_as_int(simd.load_rows(accumulator, 64, m)))
        total = word(total, simd.load_uint8(unsigned), signed, stride)
        simd.store_rows(out, 64, simd.bits_as_float(total))

    def apply(accumulator: Any, unsigned: Any, signed: Any) -> npt.NDArray[Any]:
        out = np.zeros((m, LANES), I32)
        run(
            accumulator.ctypes.data,
            unsigned.ctypes.data,
            signed.ctypes.data,
            signed.strides[0],
            out.ctypes.data,
        )
        return out

    return apply


def exact_dot(accumulator: Any, unsigned: Any, signed: Any) -> npt.NDArray[Any]:
    """The definition in int64, then the low 32 bits."""
    products = unsigned.reshape(LANES, 4).astype(np.int64) @ signed[:, :4].astype(np.int64).T  # [16, m]
    return (accumulator.astype(np.int64) + products.T).astype(I32)


@pytest.mark.parametrize("m", [1, 2, 8])
@pytest.mark.parametrize(("name", "greatest"), [("dot_u7", 127), ("dot_u8", 255)])
def test_dot_products_are_exact(name: str, greatest: int, m: int) -> None:
    word = dot(getattr(simd, name), m)
    rng = np.random.default_rng(7)
    for low, high in ((0, greatest), (greatest, greatest), (0, 0), (greatest - 1, greatest)):
        for least, most in ((-128, 127), (-128, -128), (127, 127)):
            accumulator = rng.integers(-(2**31), 2**31, (m, LANES)).astype(I32)
            unsigned = rng.integers(low, high + 1, 64).astype(U8)
            signed = rng.integers(least, most + 1, (m, 13)).astype(np.int8)
            got = word(accumulator, unsigned, signed)
            assert differing(got, exact_dot(accumulator, unsigned, signed)) == 0


def test_dot_u8_does_not_saturate_where_pmaddubsw_does() -> None:
    """Two products of bytes above 127 leave int16: the instruction would saturate, the word must not."""
    word = dot(simd.dot_u8, 1)
    nothing = np.zeros((1, LANES), I32)
    for u, s in ((255, 127), (255, -128), (200, 127), (129, -128), (130, 127)):
        unsigned, signed = np.full(64, u, U8), np.full((1, 4), s, np.int8)
        saturated = 2 * min(max(2 * u * s, -(2**15)), 2**15 - 1)
        assert saturated != 4 * u * s, "the case doesn't saturate"
        assert (word(nothing, unsigned, signed) == 4 * u * s).all()


def test_nibbles_of_every_byte() -> None:
    """Seen through a dot product with 1 at one place of four, 0 elsewhere."""

    @numba.njit
    def run(source: int, ones: int, low: int, high: int) -> None:
        for i in range(4):
            place = ones + 4 * i
            packed = simd.load_uint8(source)
            simd.store_int(low + 64 * i, simd.dot_u8(simd.zeros_int(1), simd.low_nibbles(packed), place, 0))
            simd.store_int(high + 64 * i, simd.dot_u8(simd.zeros_int(1), simd.high_nibbles(packed), place, 0))

    ones = np.eye(4, dtype=np.int8)
    for start in range(0, 256, 64):
        source = np.arange(start, start + 64, dtype=U8)
        low, high = np.zeros((4, LANES), I32), np.zeros((4, LANES), I32)
        run(source.ctypes.data, ones.ctypes.data, low.ctypes.data, high.ctypes.data)
        assert np.array_equal(low.T.ravel(), source % 16)
        assert np.array_equal(high.T.ravel(), source // 16)


BYTE_WORDS: dict[str, Callable[..., Any]] = {
    "and_bytes": np.bitwise_and,
    "or_bytes": np.bitwise_or,
    "sub_bytes": np.subtract,
    "shift_left_bytes": lambda x, y: x << (y % 8),
    "shift_right_bytes": lambda x, y: x >> (y % 8),
}


@pytest.mark.parametrize("name", BYTE_WORDS)
def test_words_of_bytes(name: str) -> None:
    """All pairs of bytes; shifts by 0 to 7. No bit crosses into a neighbour. Seen as nibbles are."""
    word, shift = getattr(simd, name), name.startswith("shift")

    @numba.njit
    def run(x: int, y: int, ones: int, out: int) -> None:
        for i in range(4):
            other = simd.splat_uint8(y)
            result = word(simd.load_uint8(x), other)
            simd.store_int(out + 64 * i, simd.dot_u8(simd.zeros_int(1), result, ones + 4 * i, 0))

    ones = np.eye(4, dtype=np.int8)
    for y in range(8 if shift else 256):
        for start in range(0, 256, 64):
            x = np.arange(start, start + 64, dtype=U8)
            out = np.zeros((4, LANES), I32)
            run(x.ctypes.data, y, ones.ctypes.data, out.ctypes.data)
            assert np.array_equal(out.T.ravel(), BYTE_WORDS[name](x, U8(y)))


def test_a_vector_of_bytes_is_stored() -> None:
    """All 64 of them and none behind, at an address that is a multiple of nothing."""

    @numba.njit
    def run(source: int, out: int) -> None:
        simd.store_uint8(out, simd.load_uint8(source))

    source = np.random.default_rng(9).permutation(256).astype(U8)
    out = np.full(77, 99, U8)
    run(source.ctypes.data + 13, out.ctypes.data + 7)
    assert out.tolist() == [99] * 7 + source[13:77].tolist() + [99] * 6


def test_bytes_are_looked_up() -> None:
    """Every index at every place of the vector, in a table that is not symmetric."""

    @numba.njit
    def run(low: int, high: int, index: int, ones: int, out: int) -> None:
        for i in range(4):
            found = simd.look_up_bytes(simd.splat_16_bytes(low, high), simd.load_uint8(index))
            simd.store_int(out + 64 * i, simd.dot_u8(simd.zeros_int(1), found, ones + 4 * i, 0))

    table = np.array([255, 0, 1, 128, 127, 7, 77, 200, 3, 90, 254, 129, 60, 31, 16, 99], U8)
    low, high = (int(half) for half in table.view(np.int64))
    ones = np.eye(4, dtype=np.int8)
    for shift in range(16):
        index = ((np.arange(64) * 5 + shift) % 16).astype(U8)
        out = np.zeros((4, LANES), I32)
        run(low, high, index.ctypes.data, ones.ctypes.data, out.ctypes.data)
        assert np.array_equal(out.T.ravel(), table[index])


# Memory and half precision


def every_half() -> npt.NDArray[np.float16]:
    return np.arange(2**16, dtype=np.uint16).view(np.float16)


def test_halves_are_read_exactly() -> None:
    @numba.njit
    def run(source: int, out: int, count: int) -> None:
        for i in range(0, count, 16):
            simd.store(out + 4 * i, simd.load_half(source + 2 * i))

    @numba.njit
    def run_scalar(source: int, out: int, count: int) -> None:
        for i in range(count):
            simd.store_scalar(out + 4 * i, simd.load_half_scalar(source + 2 * i))

    @numba.njit
    def run_sized(source: int, out: int, count: int) -> None:
        for i in range(0, count, 16):
            simd.store(out + 4 * i, simd.load_sized(source + 2 * i, 2))

    halves = every_half()
    for each in (run, run_scalar, run_sized):
        out = np.zeros(halves.size, F32)
        each(halves.ctypes.data, out.ctypes.data, halves.size)
        assert_same_floats(out, halves.astype(F32))


def test_bfloats_are_read_exactly() -> None:
    """Every one of them, as the upper half of a float32."""

    @numba.njit
    def run(source: int, out: int, count: int) -> None:
        for i in range(0, count, 16):
            simd.store(out + 4 * i, simd.load_bfloat(source + 2 * i))

    every = np.arange(2**16, dtype=np.uint16)
    out = np.zeros(every.size, F32)
    run(every.ctypes.data, out.ctypes.data, every.size)
    assert np.array_equal(out.view(np.uint32), every.astype(np.uint32) << 16)


def nearest_half(x: np.float32) -> float:
    """Ties to even in exact arithmetic; 65,520 and above overflow."""
    value = Fraction(float(x))
    if abs(value) >= 65520:
        return float(np.copysign(np.inf, x))
    exponent = int(np.frexp(float(x))[1]) - 1 if x else -14
    last_place = Fraction(2) ** (max(exponent, -14) - 10)
    return float(np.copysign(float(round(abs(value) / last_place) * last_place), x))


def test_halves_are_rounded_to_even() -> None:
    @numba.njit
    def run(source: int, out: int, count: int) -> None:
        for i in range(0, count, 16):
            simd.store_sized(out + 2 * i, simd.load(source + 4 * i), 2)

    @numba.njit
    def run_scalar(source: int, out: int, count: int) -> None:
        for i in range(count):
            simd.store_scalar_sized(out + 2 * i, simd.load_scalar(source + 4 * i), 2)

    finite = np.sort(every_half()[np.isfinite(every_half())]).astype(F32)
    ties = (finite[:-1] + finite[1:]) / F32(2)  # exact: float32 has 13 more bits
    chosen = np.random.default_rng(8).choice(ties, 4000)
    edges = np.array(
        [65504, 65519.996, 65520, 65536, 3e38, -65520, 2.0**-24, 2.0**-25, 1e-8, -1e-8, 1e-45, 0, -0.0], F32
    )
    around = np.concatenate([np.nextafter(chosen, F32(np.inf)), chosen, np.nextafter(chosen, F32(-np.inf)), edges])
    values = np.resize(around, -(-around.size // LANES) * LANES)
    expected = np.array([nearest_half(x) for x in values]).astype(np.float16)
    for each in (run, run_scalar):
        out = np.zeros(values.size, np.float16)
        each(values.ctypes.data, out.ctypes.data, values.size)
        assert_same_floats(out, expected)
        specials = np.array([np.nan, np.inf, -np.inf] + [1.0] * 13, F32)
        each(specials.ctypes.data, out.ctypes.data, LANES)
        assert np.isnan(out[0])
        assert out[1] == np.inf
        assert out[2] == -np.inf


def test_words_of_size_four_copy() -> None:
    @numba.njit
    def run(source: int, out: int) -> None:
        simd.store_sized(out, simd.load_sized(source, 4), 4)
        simd.store_scalar_sized(out + 64, simd.load_scalar(source + 4), 4)

    out = np.zeros(17, F32)
    run(EDGE_FLOATS.ctypes.data, out.ctypes.data)
    assert differing(out, EDGE_FLOATS[[*range(16), 1]]) == 0


def test_words_of_size_one_round_to_even() -> None:
    """Every byte comes back; between two, the nearest, and of two halves the even one."""

    @numba.njit
    def run(source: int, out: int, scalars: int, back: int, count: int) -> None:
        for i in range(0, count, 16):
            simd.store_sized(out + i, simd.load(source + 4 * i), 1)
            simd.store(back + 4 * i, simd.load_sized(out + i, 1))
        for i in range(count):
            simd.store_scalar_sized(scalars + i, simd.load_scalar(source + 4 * i), 1)

    whole = np.arange(-128, 128, dtype=F32)
    halves = whole[:-1] + F32(0.5)
    below, above = np.nextafter(halves, F32(-200)), np.nextafter(halves[:-1], F32(200))
    values = np.concatenate([whole, halves[:-1], below, above, [-0.0, 1e-45, -1e-45, 0]]).astype(F32)
    values = np.resize(values, -(-values.size // LANES) * LANES)
    out, scalars, back = (np.zeros(values.size, dtype) for dtype in (np.int8, np.int8, F32))
    run(values.ctypes.data, out.ctypes.data, scalars.ctypes.data, back.ctypes.data, values.size)
    expected = [round(Fraction(float(x))) for x in values]  # Python's own, ties to even
    assert out.tolist() == scalars.tolist() == back.tolist() == expected


def test_bytes() -> None:
    @numba.njit
    def run(ints: int, out: int) -> None:
        simd.store_int8(out, simd.load_int(ints))

    @numba.njit
    def byte(address: int) -> int:
        return simd.load_uint8_scalar(address)

    ints = np.array([0, 1, -1, 127, -127, 128, -128, 255, 256, 1000, -1000, 2**31 - 1, -(2**31), 5, 6, 7], I32)
    out = np.full(32, 99, np.int8)
    run(ints.ctypes.data, out.ctypes.data)
    assert np.array_equal(out[:16], ints.astype(np.int8))
    assert (out[16:] == 99).all()
    every = np.arange(256, dtype=U8)
    assert [byte(every.ctypes.data + i) for i in range(256)] == list(range(256))

    @numba.njit
    def four(address: int) -> int:
        return simd.load_uint32_scalar(address)

    @numba.njit
    def signed(address: int, out: int) -> None:
        simd.store_int(out, simd.load_int8(address))

    @numba.njit
    def put(address: int, value: int) -> None:
        simd.store_uint8_scalar(address, value)

    for start in (0, 1, 251, 252):
        assert four(every.ctypes.data + start) == int.from_bytes(bytes(range(start, start + 4)), "little")
        words = np.full(LANES, 99, I32)
        signed(every.ctypes.data + min(start, 240), words.ctypes.data)
        assert np.array_equal(words, every[min(start, 240) :][:LANES].astype(np.int8))
    for value in (0, 255, 256 + 7, -1):
        target = np.full(3, 99, U8)
        put(target.ctypes.data + 1, value)
        assert target.tolist() == [99, value % 256, 99]

    @numba.njit
    def put_four(address: int, value: int) -> None:
        simd.store_uint32_scalar(address, value)

    for value in (0, 0x01020304, 2**32 - 1, 2**40 + 258, -2):
        target = np.full(6, 99, U8)
        put_four(target.ctypes.data + 1, value)
        assert target.tolist() == [99, *(value % 2**32).to_bytes(4, "little"), 99]


def test_asking_ahead_reads_nothing() -> None:
    """Not even where there is no memory."""

    @numba.njit
    def run(address: int) -> int:
        simd.prefetch(address)
        return simd.load_uint8_scalar(address)

    @numba.njit
    def nowhere() -> None:
        for address in (0, 1, 1 << 40, -64):
            simd.prefetch(address)

    array = np.arange(64, dtype=U8)
    assert run(array.ctypes.data + 5) == 5
    nowhere()


# The processor


def test_atomics() -> None:
    @numba.njit
    def run(word: int) -> tuple[int, int, int]:
        before = processor.atomic_add(word, 5)
        middle = processor.atomic_load(word)
        processor.atomic_store(word, -9)
        processor.pause()
        return before, middle, processor.atomic_load(word)

    word = np.array([37], np.int64)
    assert run(word.ctypes.data) == (37, 42, -9)


def test_the_cycle_counter_advances() -> None:
    @numba.njit
    def run() -> int:
        return processor.cycles()

    stamps = [run() for _ in range(100)]
    assert all(a <= b for a, b in itertools.pairwise(stamps))  # aarch64's ticks are as long as a call
    assert stamps[0] < stamps[-1]


def test_the_float_environment_acts_and_is_returned() -> None:
    @numba.njit
    def run(state: int, x: int, out: int) -> tuple[int, int]:
        before = processor.set_float_environment(state)
        simd.store(out, simd.mul(simd.load(x), simd.splat(np.float32(0.5))))
        return before, processor.set_float_environment(before)

    x, out = np.full(LANES, np.finfo(F32).tiny, F32), np.zeros(LANES, F32)
    before, state = run(FLUSH_TO_ZERO, x.ctypes.data, out.ctypes.data)
    assert state & CONTROL_BITS == FLUSH_TO_ZERO & CONTROL_BITS
    assert (out == 0).all()
    again, _ = run(registers.DEFAULT_FLOAT_ENVIRONMENT, x.ctypes.data, out.ctypes.data)
    assert again == before
    assert (out == F32(np.finfo(F32).tiny) / 2).all()


def test_a_kernel_is_called_by_its_address() -> None:
    @kernel
    def write_difference(x: int, y: int, out: int) -> None:
        simd.store_scalar(out, np.float32(x - y))

    @numba.njit
    def run(address: int, out: int) -> None:
        processor.call_kernel(address, (50, 8, out))

    out = np.zeros(1, F32)
    run(write_difference.address, out.ctypes.data)
    assert out[0] == 42


def test_a_compiled_function_is_called_by_its_entry() -> None:
    @root_jit
    def difference(x: int, y: float) -> float:
        return x - y

    @numba.njit
    def run(entry: int, words: int, results: int) -> int:
        return processor.call_entry(entry, words, results)

    entry, words, _ = difference.made_ready(50, 7.5)  # type: ignore[attr-defined]
    arguments, results = np.frombuffer(words, np.int64), np.zeros(1, np.float64)
    assert run(entry.address, arguments.ctypes.data, results.ctypes.data) == 0
    assert results[0] == 42.5


def test_who_sleeps_is_woken() -> None:
    """The sleeper sleeps until its word is changed and it is woken, whatever the word's high half is."""

    @numba.njit(nogil=True)
    def sleep(word: int, high: int) -> None:
        while processor.atomic_load(word) == high + 1:
            simd.sleep_while(word, high + 1)

    @numba.njit(nogil=True)
    def change_and_wake(word: int) -> None:
        processor.atomic_add(word, 1)
        simd.wake(word)

    words = np.array([0, 0], np.int64)
    word = words.ctypes.data
    sleep(word, 0)  # the word holds another number: no sleep
    change_and_wake(word + 8)  # nobody sleeps there
    for high in (0, 1 << 32):
        words[0] = high + 1
        sleeper = threading.Thread(target=sleep, args=(word, high), daemon=True)
        sleeper.start()
        status = Path(f"/proc/self/task/{sleeper.native_id}/status")
        deadline = time.monotonic() + 300
        while "State:\tS" not in status.read_text():
            assert time.monotonic() < deadline, "it doesn't sleep"
        change_and_wake(word)
        sleeper.join(300)
        assert not sleeper.is_alive(), "it wasn't woken"


@pytest.mark.parametrize("word", [simd.load, simd.dot_u8, simd.call_kernel, simd.no_tap])
def test_words_are_for_compiled_code(word: Any) -> None:
    with pytest.raises(NotImplementedError, match=f"{word.__name__} is a word for compiled code"):
        word(1)


def test_another_word_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="the vocabulary has no word 'laod'"):
        simd.laod(0)


def test_no_word_is_untested() -> None:
    source = "".join(path.read_text() for path in [Path(__file__), *Path(__file__).parent.glob("simd/test_*.py")])
    words = {word for module, names in simd.WORDS.items() for word in names.split() if module != "taps"}
    assert sorted(word for word in words if not re.search(rf"\bsimd\.{word}\b|\"{word}\"|\b{word}\(", source)) == []
