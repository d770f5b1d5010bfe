"""What each operation of a step must compute and move, from sizes alone.

In: a model's config, the bytes of its matrices, what a batch asks for. Out: for each tap of the forward whose operation
the model has, in the forward's order, operations and bytes.

Conventions. A multiplication and an addition are two operations; exp, sine, cosine, square root, division and rounding
are one each. A matrix product counts its 2·T·N·K int8 operations, not the few float32 ones that apply the blocks'
scales. Bytes are compulsory: each distinct byte that the operation reads or writes counts once, wherever in the caches
it may lie. Token ids, positions and page tables are not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cutaway.model.config import ModelConfig
from cutaway.model.shapes import layer_parts, taps_of
from cutaway.ops.cpu.arrays import Batch

FLOAT = 4  # bytes


@dataclass(frozen=True)
class StepWork:
    """What a batch asks of a step, in layers with one window."""

    tokens: int  # T
    outputs: int  # O
    attended: int  # pairs of a query and a position that it attends, of one head
    cached: int  # positions whose keys and values are read, all sequences together


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of one operation; ``shape`` shows what goes in and what comes out."""

    shape: str
    int8_operations: int = 0
    flops: int = 0  # float32
    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    rows: int = 0  # of activations, in a matrix product

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def step_work(batch: Batch, window: int = 0) -> StepWork:
    """The work of a batch: each token attends the positions of its sequence up to its own, or the last ``window`` of
    them. A sequence's tokens are consecutive.
    """
    positions = batch.positions.astype(np.int64)
    ends = np.zeros(len(batch.block_tables), np.int64)
    np.maximum.at(ends, batch.sequences, positions + 1)
    starts = np.zeros_like(ends)
    attended = positions + 1
    if window:
        starts = ends.copy()
        np.minimum.at(starts, batch.sequences, np.maximum(0, positions + 1 - window))
        attended = np.minimum(attended, window)
    return StepWork(
        tokens=len(positions),
        outputs=len(batch.output_rows),
        attended=int(attended.sum()),
        cached=int((ends - starts).sum()),
    )


def works_of(config: ModelConfig, batch: Batch) -> dict[int, StepWork]:
    """``step_work`` for each window that the model's layers have."""
    return {window: step_work(batch, window) for window in sorted(set(config.windows))}


def _norm(config: ModelConfig, rows: int, width: int) -> Cost:
    """Square, sum, and two products an element; with a centre a sum and a difference, with a bias another sum."""
    return Cost(
        f"{rows}×{width}",
        flops=(7 if config.layer_norm else 4) * rows * width,
        weight_bytes=(1 + config.layer_norm) * FLOAT * width,
        activation_bytes=2 * FLOAT * rows * width,
    )


def _head_norm(rows: int, heads: int, head_dim: int) -> Cost:
    """As ``_norm``, in place; two weights, of queries and of keys."""
    numbers = rows * heads * head_dim
    return Cost(
        f"{rows}×{heads}×{head_dim}",
        flops=4 * numbers,
        weight_bytes=2 * FLOAT * head_dim,
        activation_bytes=2 * FLOAT * numbers,
    )


def _softcap(rows: int, width: int) -> Cost:
    """Product, exp, sum, quotient, difference, product an element; in place."""
    return Cost(f"{rows}×{width}", flops=6 * rows * width, activation_bytes=2 * FLOAT * rows * width)


def quantized_bytes(rows: int, width: int) -> int:
    """Bytes of quantised rows: int8 values; for each block of 32 a scale and two sums of 4 bytes."""
    return rows * (width + width // 32 * 3 * 4)


def _quantize(rows: int, width: int) -> Cost:
    """Absolute value, maximum, product and rounding an element."""
    return Cost(
        f"{rows}×{width}",
        flops=4 * rows * width,
        activation_bytes=FLOAT * rows * width + quantized_bytes(rows, width),
    )


def _product(rows: int, width: int, columns: int, weight_bytes: int) -> Cost:
    """Rows of ``width`` times a matrix of ``columns`` rows."""
    return Cost(
        f"{rows}×{width} · {width}×{columns}",
        int8_operations=2 * rows * width * columns,
        weight_bytes=weight_bytes,
        activation_bytes=quantized_bytes(rows, width) + FLOAT * rows * columns,
        rows=rows,
    )


def _add(rows: int, width: int) -> Cost:
    return Cost(f"{rows}×{width}", flops=rows * width, activation_bytes=3 * FLOAT * rows * width)


def _layer_costs(
    config: ModelConfig, layer: int, weight_bytes: Mapping[str, int], work: StepWork, position_bytes: int
) -> dict[str, Cost]:
    """The costs of one layer's operations, by the names of their taps."""
    T, D, F = work.tokens, config.width, config.ffn_width
    H, Hkv, Dh, R = config.num_heads, config.num_kv_heads, config.head_dim, config.rotary_dim
    qkv_width, rotated = (H + 2 * Hkv) * Dh, (H + Hkv) * R
    turned = config.rope_of_layer[layer] >= 0
    parts = layer_parts(config)
    inner, gated = (1 + config.gated) * F, int(config.gated)

    def weights(*slots: str) -> int:
        return sum(weight_bytes[f"blk.{layer}.{name}.weight"] for name in {parts[slot].matrix for slot in slots})

    return {
        "attention_norm": _norm(config, T, D),
        "attention_input": _quantize(T, D),
        "qkv": _product(T, D, qkv_width, weights("attn_q", "attn_k", "attn_v")),
        "head_norm": _head_norm(T, H + Hkv, Dh),
        # A pair takes 4 products and 2 sums.
        "rope": Cost(
            f"{T}×{H + Hkv}×{R}",
            flops=3 * T * rotated * turned,
            activation_bytes=(2 * FLOAT * T * rotated + FLOAT * T * R) * turned,
        ),
        "kv_write": Cost(
            f"{T}×{2 * Hkv}×{Dh}",
            kv_bytes=T * position_bytes,
            activation_bytes=FLOAT * T * 2 * Hkv * Dh,
        ),
        # q·k and weight·v; for each score maximum, difference, exp and sum, and six more where it is soft-capped.
        "attention": Cost(
            f"{T}×{H}×{Dh} over {work.cached}×{Hkv}×{Dh}",
            flops=work.attended * H * (4 * Dh + (10 if config.attention_cap else 4)),
            kv_bytes=work.cached * position_bytes,
            activation_bytes=2 * FLOAT * T * H * Dh,
        ),
        "attention_output_input": _quantize(T, H * Dh),
        "attention_output": _product(T, H * Dh, D, weights("attn_output")),
        "attention_post_norm": _norm(config, T, D),
        "attention_residual": _add(T, D),
        "ffn_norm": _norm(config, T, D),
        "ffn_input": _quantize(T, D),
        "gate_up": _product(T, D, inner, weights("ffn_gate", "ffn_up")),
        # Negation, exp, sum, quotient; a product with the gate; five more for GELU's polynomial.
        "activate": Cost(
            f"{T}×{inner} → {T}×{F}",
            flops=(4 + gated + (5 if config.activation == "gelu" else 0)) * T * F,
            activation_bytes=(2 + gated) * FLOAT * T * F,
        ),
        "down_input": _quantize(T, F),
        "down": _product(T, F, D, weights("ffn_down")),
        "ffn_post_norm": _norm(config, T, D),
        "ffn_residual": _add(T, D),
    }


def step_costs(
    config: ModelConfig, weight_bytes: Mapping[str, int], works: Mapping[int, StepWork], position_bytes: int
) -> dict[tuple[str, int], Cost]:
    """The cost of each operation that the model has, under (tap, layer), layer -1 outside the layers; in the forward's
    order.

    weight_bytes: bytes of each matrix under its name in the file. works: by window, for those that the layers have.
    position_bytes: in the KV cache, of one position's keys and values in one layer.
    """
    work = next(iter(works.values()))
    T, O, D, V = work.tokens, work.outputs, config.width, config.vocab_size
    angles = len(config.ropes) * config.rotary_dim
    embedding = weight_bytes["token_embd.weight"]
    before = {
        "embed": Cost(
            f"{T} → {T}×{D}",
            flops=T * D * (config.embedding_scale != 1),
            weight_bytes=T * (embedding // V),
            activation_bytes=FLOAT * T * D,
        ),
        "add_positions": _add(T, D),
        # A pair takes a product, a sine and a cosine.
        "rope_angles": Cost(f"{T} → {T}×{angles}", flops=3 * T * angles // 2, activation_bytes=FLOAT * T * angles),
    }
    after = {
        "take_rows": Cost(f"{T}×{D} → {O}×{D}", activation_bytes=2 * FLOAT * O * D),
        "output_norm": _norm(config, O, D),
        "head_input": _quantize(O, D),
        "logits": _product(O, D, V, weight_bytes.get("output.weight", embedding)),
        "logits_softcap": _softcap(O, V),
    }
    costs = {(name, -1): cost for name, cost in before.items()}
    for layer, window in enumerate(config.windows):
        each = _layer_costs(config, layer, weight_bytes, works[window], position_bytes)
        costs |= {(name, layer): cost for name, cost in each.items()}
    costs |= {(name, -1): cost for name, cost in after.items()}
    present = taps_of(config)
    return {(name, layer): cost for (name, layer), cost in costs.items() if name in present}
