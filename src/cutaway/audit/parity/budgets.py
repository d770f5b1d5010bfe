"""How far an operation may be from its definition: derived from its roundings, not from measurements.

In: a call of an operation, as ``shadow`` found it. Out: a ``Budget``: the error that is expected, the greatest that is
allowed, and what both are relative to. docs/parity.md derives each; the rules are these.

A rounding to float32 is wrong by u = 2⁻²⁴ of the number at most, and by u/√3 in the root mean square. Of n independent
ones the expected error is u·√(n/3). Where an output comes of few roundings, none of which can be worse than u, n·u is
the bound. Where it is a sum of many, that would allow far too much: there it is ``SIGMAS`` times the expected error.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.parity.shadow import Call, by_row
from cutaway.ops.cpu.attention import TILE
from cutaway.ops.cpu.quantize import LEAST
from cutaway.ops.reference import slots_of
from cutaway.ops.simd.registers import LANES

U: Final = 2.0**-24
"""The unit roundoff of float32."""
HALF: Final = 2.0**-11
"""That of float16."""
HALF_LEAST: Final = 2.0**-14
"""The smallest normal number of float16; below it the spacing stays that of the numbers above."""
SIGMAS: Final = 6.0
"""Of a normally distributed error one in 500 million is so many standard deviations large."""
GRID: Final = 127.0
"""Steps of int8 from 0 to the greatest number of a block."""
ROUNDING_SLACK: Final = 1 + 2.0**-10
"""For the second order, and for the division by which an int8 step is itself rounded."""
LEAST_OF_BLOCK: Final = 2 * GRID * float(LEAST)
"""A block below ``LEAST`` becomes zeros: half a step of this is as much."""
NUMBERS: Final = ("F32", "F16", "BF16")
"""Block types that are no blocks."""
LEAST_PRODUCT: Final = 2.0**-100
"""Of a gate and what it lets pass: far below, what float32 calls zero."""

Doubles = npt.NDArray[np.float64]


class Budget(NamedTuple):
    """Errors are relative to ``scale``, which broadcasts to the output."""

    expected: float  # root mean square
    limit: float  # of any output
    scale: Any


def budget_of(call: Call, data_type: str) -> Budget:
    """The budget of one call. data_type: of keys and values in the cache."""
    exact = np.abs(call.exact)
    arguments = call.arguments
    if call.operation == "take_rows":
        return Budget(0.0, 0.0, 1.0)
    if call.operation == "embed":
        return chain(0 if float(call.shadows[2]) == 1 else 1, exact)
    if call.operation in ("add_positions", "add_rows", "rope_angles"):
        return chain(1, exact)
    if call.operation == "rope":
        return Budget(rms(2), 2 * math.sqrt(2) * U * ROUNDING_SLACK, _greatest_of_head(exact, int(arguments[5])))
    if call.operation == "activate":
        return Budget(rms(6), 8 * U, _let_pass(call))
    if call.operation == "softcap":
        return _capped(call)
    if call.operation == "norm":
        return _normed(call)
    if call.operation == "head_norm":
        width = int(arguments[5])
        return summed(norm_roundings(width), _typical(exact.reshape(-1, width)).reshape(exact.shape))
    if call.operation == "matmul":
        return _product(call)
    if call.operation == "attention":
        return _attention(call)
    if call.operation == "quantize_rows":
        return _quantized(call)
    assert call.operation == "kv_write", call.operation
    return _written(call, data_type)


def rms(roundings: float) -> float:
    """The expected error of so many independent roundings."""
    return U * math.sqrt(roundings / 3)


def chain(roundings: int, exact: Doubles) -> Budget:
    """Few roundings, one after the other: each output's error is relative to itself."""
    return Budget(rms(roundings), roundings * U * ROUNDING_SLACK, exact)


def summed(roundings: float, scale: Any) -> Budget:
    """Many roundings."""
    return Budget(rms(roundings), SIGMAS * rms(roundings), scale)


def norm_roundings(width: int) -> float:
    """Of a norm over so many numbers: a lane's sum of squares, whose partial sums grow evenly, counts a third of its
    terms, shared among the lanes; the tree has four levels; the root halves the error of all this. Then the root, the
    quotient, and two products.
    """
    return (width / LANES / 3 / LANES + 4 + 2) / 4 + 4


def centre_roundings(width: int) -> float:
    """Of the mean that a layer norm takes away, relative to it: sums of the lanes, tree, quotient."""
    return width / LANES / 3 / LANES + 4 + 1


def _normed(call: Call) -> Budget:
    """A layer norm rounds each difference from the mean, and with a mean that is larger than what differs from it, the
    mean's own error counts as much more.
    """
    width, (x, kind) = call.exact.shape[-1], call.shadows[:2]
    scale, roundings = _typical(np.abs(call.exact)), norm_roundings(width)
    if not kind.centred:
        return summed(roundings, scale)
    deviation = x.std(axis=-1)  # no layer norm is computed in place: x is still what came
    ratio = np.divide(x.mean(axis=-1) ** 2, deviation**2, out=np.zeros_like(deviation), where=deviation > 0)
    by_mean = centre_roundings(width) * ratio
    return Budget(rms(roundings + 1 + by_mean.mean()), SIGMAS * rms(roundings + 1 + by_mean.max()), scale)


def _let_pass(call: Call) -> Doubles:
    """What a gate could let pass, |gate · up|: an activation is x times a number from 0 to 1 whose error is relative to
    1.
    """
    gate_up, F = np.abs(call.shadows[0]), call.exact.shape[1]
    passing = gate_up[:, :F] * gate_up[:, F:] if gate_up.shape[1] == 2 * F else gate_up
    floored: Doubles = np.maximum(passing, LEAST_PRODUCT)
    return floored


def _capped(call: Call) -> Budget:
    """cap · (1 - 2 / (e^2u + 1)): the difference's error is relative to 1, so that of the whole is to the cap."""
    cap = float(call.shadows[1])
    size = np.sqrt((call.exact * call.exact).mean(axis=1))
    expected = root_mean_square(np.divide(rms(4) * cap, size, out=np.zeros_like(size), where=size > 0))
    return Budget(expected, 8 * U, cap)


def product_roundings(columns: int, block_type: str) -> float:
    """Of a product over so many columns: for each block of 32 an integer sum, exact, whose scale is one rounding, and a
    fma that rounds the sum so far. Partial sums of random signs grow as √b, so that B of these count B/2. A format with
    a minimum has a second fma for each block, and terms that are larger than what is left of them: docs/parity.md.
    Q2_K, with scales of 16 weights besides, has four. Weights that are numbers have a chain of 32 fma for each block,
    which counts 16, in the place of the exact sum.
    """
    blocks = columns / 32
    if block_type in NUMBERS:
        return blocks / 2 + 16 + 1
    return blocks * (2 if block_type == "Q2_K" else 1) + 9


def _product(call: Call) -> Budget:
    """Relative to what the sums run through: the sum itself, or, where that is larger, a random walk of its terms that
    begins at the bias.

    A format with a minimum makes a weight of two terms that may be as large as its block's greatest weight and cancel
    each other, so each weight counts as that one.
    """
    weights, activation = call.shadows[:2]
    scale = np.abs(call.exact)
    column = 0
    for weight in weights:
        rows, columns = weight.matrix.shape
        if rows == 0:  # a gate that the model doesn't have
            continue
        blocks = activation.q[: len(scale), :columns].reshape(len(scale), -1, 32)
        greatest = np.abs(weight.matrix).reshape(rows, -1, 32).max(axis=2).astype(np.float64)
        squares = (blocks * blocks).sum(axis=2) @ (greatest * greatest).T
        walk = np.sqrt(squares if weight.bias is None else squares + weight.bias.astype(np.float64) ** 2)
        part = scale[:, column : column + rows]
        np.maximum(part, walk, out=part)
        column += rows
    scale[:, column:] = 1.0  # padding
    return summed(max(product_roundings(each.matrix.shape[1], each.block_type) for each in weights), scale)


def _attention(call: Call) -> Budget:
    """A score is a chain of Dh fma, and its absolute error is the relative one of its weight; so is that of a cap. Then
    the exponential, sums of weights and of weighted values over a tile, and the tree.
    """
    Dh, scale, cap = call.shadows[6], float(call.shadows[8]), float(call.shadows[9])
    expected = math.hypot(rms(Dh / 2) * scale * _greatest_score(call), rms(4) * cap, rms(TILE / 3 + 12))
    return Budget(expected, SIGMAS * expected, np.abs(call.exact).max(initial=0.0))


def _greatest_score(call: Call) -> float:
    """The greatest |q·k| of a token and a position up to its own; with a window some of these are not attended."""
    qkv, batch, kv, _, H, Hkv, Dh, *_ = call.shadows
    queries = qkv.reshape(len(qkv), H + 2 * Hkv, Dh)[:, :H].reshape(len(qkv), Hkv, -1, Dh)
    greatest = 0.0
    for t, (sequence, position) in enumerate(zip(batch.sequences, batch.positions, strict=True)):
        slots = slots_of(batch, kv, sequence, np.arange(position + 1))
        greatest = max(greatest, float(np.abs(np.einsum("kgd,pkd->kgp", queries[t], kv.keys[0, slots])).max()))
    return greatest


def _quantized(call: Call) -> Budget:
    """Half a step of its block's grid at most; evenly spread within it, 1/√12 of a step."""
    T, K = call.exact.shape
    steps = by_row(call.arguments[1].scale)[:T, : K // 32].astype(np.float64)
    noise = np.sqrt((steps * steps).mean(axis=1) / 12)  # of a row, in the root mean square
    size = np.sqrt((call.exact * call.exact).mean(axis=1))
    expected = root_mean_square(np.divide(noise, size, out=np.zeros_like(noise), where=size > 0))
    greatest = np.maximum(steps * GRID, LEAST_OF_BLOCK)
    return Budget(expected, 0.5 / GRID * ROUNDING_SLACK, np.repeat(greatest, 32, axis=1))


def _written(call: Call, data_type: str) -> Budget:
    """Keys and values in the cache's type."""
    exact = np.abs(call.exact)
    if data_type == "f32":
        return Budget(0.0, 0.0, 1.0)
    if data_type == "f16":
        return Budget(HALF / math.sqrt(3), HALF, np.maximum(exact, HALF_LEAST))
    greatest = exact.max(axis=-1, keepdims=True)
    noise = np.sqrt((greatest * greatest).mean(axis=(1, 2)) / 12) / GRID
    size = np.sqrt((call.exact * call.exact).mean(axis=(1, 2)))
    expected = root_mean_square(np.divide(noise, size, out=np.zeros_like(noise), where=size > 0))
    return Budget(expected, 0.5 / GRID * ROUNDING_SLACK, np.maximum(greatest, LEAST_OF_BLOCK))


def root_mean_square(values: Doubles) -> float:
    """Of any number of numbers; 0 of none."""
    return float(np.sqrt((values * values).mean())) if values.size else 0.0


def _typical(exact: Doubles) -> Doubles:
    """Each output's magnitude, or its row's root mean square where that is larger."""
    size = np.sqrt((exact * exact).mean(axis=-1, keepdims=True))
    typical: Doubles = np.maximum(exact, size)
    return typical


def _greatest_of_head(exact: Doubles, head_dim: int) -> Doubles:
    heads = exact.reshape(len(exact), -1, head_dim)
    greatest: Doubles = np.broadcast_to(heads.max(axis=-1, keepdims=True), heads.shape).reshape(exact.shape)
    return greatest
