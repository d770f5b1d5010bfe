"""The operations in NumPy float64 on dequantised weights: the definition of right, written to be obvious, not fast.

In and out: the same arguments as the compiled operations, but with float64 buffers, ``DenseWeight`` objects in the
place of weight records, and a ``ReferenceKV`` in the place of the cache's addresses. ``quantize_rows`` keeps the
numbers as they are.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.arrays import Activation, Batch, Ints

Array = npt.NDArray[np.float64]


class DenseWeight(NamedTuple):
    """A weight matrix as numbers."""

    matrix: Any  # [N, K] floating; float32 holds a file's dequantised values exactly
    bias: Any  # [N] or None


class ReferenceKV(NamedTuple):
    """Keys and values, by layer and slot; slot = page · page_length + position within the page."""

    keys: Array  # [L, slots, Hkv, Dh]
    values: Array  # [L, slots, Hkv, Dh]
    page_length: int


def slots_of(batch: Batch, kv: ReferenceKV, sequence: int, positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Where a sequence's positions lie in the cache."""
    pages = batch.block_tables[sequence, positions // kv.page_length]
    slots: npt.NDArray[Any] = pages * kv.page_length + positions % kv.page_length
    return slots


def embed(team: Any, weights: Any, tokens: Ints, x: Array) -> None:
    """x[t] = W[tokens[t]]."""
    x[:] = weights[0].matrix[tokens]


def rope_angles(team: Any, positions: Ints, inverse_frequencies: Array, angles: Array) -> None:
    """Cosine and sine of position · frequency, pair by pair."""
    radians = positions[:, None].astype(np.float64) * inverse_frequencies
    angles[:, 0::2], angles[:, 1::2] = np.cos(radians), np.sin(radians)


def rms_norm(team: Any, x: Array, weight: Array, epsilon: float, out: Array) -> None:
    """x / √(mean(x²) + ε) · weight."""
    out[:] = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + float(epsilon)) * weight


def quantize_rows(team: Any, x: Array, activation: Activation) -> None:
    """Keep the rows for the matrix product."""
    activation.q[: x.shape[0], : x.shape[1]] = x


def matmul(team: Any, weights: Any, activation: Activation, out: Array) -> None:
    """x @ W.T + bias for each segment, side by side."""
    column = 0
    for weight in weights:
        rows, columns = weight.matrix.shape
        product = activation.q[: out.shape[0], :columns] @ weight.matrix.astype(np.float64).T
        out[:, column : column + rows] = product if weight.bias is None else product + weight.bias
        column += rows


def rope(team: Any, qkv: Array, angles: Array, num_heads: int, head_dim: int, interleaved: bool) -> None:
    """Turn each pair (a, b) of the first heads by its angle."""
    heads = qkv[:, : num_heads * head_dim].reshape(len(qkv), num_heads, head_dim)
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, head_dim // 2), slice(head_dim // 2, None))
    )
    a, b = heads[..., first].copy(), heads[..., second].copy()
    cosine, sine = angles[:, None, 0::2], angles[:, None, 1::2]
    turned = np.empty_like(heads)
    turned[..., first], turned[..., second] = a * cosine - b * sine, a * sine + b * cosine
    qkv[:, : num_heads * head_dim] = turned.reshape(len(qkv), -1)


def kv_write(
    team: Any,
    qkv: Array,
    batch: Batch,
    kv: ReferenceKV,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
) -> None:
    """Each token's key and value into its slot."""
    heads = qkv.reshape(len(qkv), num_heads + 2 * num_kv_heads, head_dim)
    for t, (sequence, position) in enumerate(zip(batch.sequences, batch.positions, strict=True)):
        slot = slots_of(batch, kv, sequence, np.array([position]))[0]
        kv.keys[layer, slot] = heads[t, num_heads : num_heads + num_kv_heads]
        kv.values[layer, slot] = heads[t, num_heads + num_kv_heads :]


def attention(
    team: Any,
    qkv: Array,
    batch: Batch,
    kv: ReferenceKV,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    scratch: Any,
    out: Array,
) -> None:
    """softmax(q · k / √Dh) @ v over the positions up to the token's own; query head h reads KV head h // (H / Hkv)."""
    group = num_heads // num_kv_heads
    for t, (sequence, position) in enumerate(zip(batch.sequences, batch.positions, strict=True)):
        slots = slots_of(batch, kv, sequence, np.arange(position + 1))
        keys, values = kv.keys[layer, slots], kv.values[layer, slots]  # [positions, Hkv, Dh]
        queries = qkv[t, : num_heads * head_dim].reshape(num_kv_heads, group, head_dim)
        scores = np.einsum("kgd,pkd->kgp", queries, keys) / np.sqrt(head_dim)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[t] = np.einsum("kgp,pkd->kgd", weights, values).reshape(-1)


def silu_mul(team: Any, gate_up: Array, out: Array) -> None:
    """gate / (1 + e^-gate) · up."""
    gate, up = np.split(gate_up, 2, axis=1)
    with np.errstate(over="ignore"):  # e^-gate = inf gives the right limit, 0
        out[:] = gate / (1.0 + np.exp(-gate)) * up


def add_rows(team: Any, x: Array, y: Array) -> None:
    """x += y."""
    x += y


def take_rows(team: Any, x: Array, rows: Ints, out: Array) -> None:
    """out = x[rows]."""
    out[:] = x[rows]


def tap(team: Any, name: str, layer: int, array: Any) -> None:
    """Nothing; a run that wants to look puts its own function here."""


TABLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            add_rows,
            attention,
            embed,
            kv_write,
            matmul,
            quantize_rows,
            rms_norm,
            rope,
            rope_angles,
            silu_mul,
            take_rows,
            tap,
        )
    }
)
"""The forward's table for the reference run."""
