"""Costs against numbers worked out by hand, naive counting, and the bytes of a real file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.audit.costs import Cost, StepWork, step_costs, step_work
from cutaway.formats.gguf import open_gguf
from cutaway.model.batch import Piece, make_batch
from cutaway.model.config import read_config
from cutaway.model.positions import Rope
from support.configs import plain_config

TINY = plain_config()
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
# Sizes that no sum can take for one another.
TINY_BYTES = {"token_embd.weight": 96 * 10} | {
    f"blk.{layer}.{name}.weight": 10 ** (number + 1) * (layer + 1)
    for layer in range(2)
    for number, name in enumerate(MATRICES)
}
# Two tokens at positions 3 and 4 of one sequence: they attend 4 and 5 positions.
WORK = StepWork(tokens=2, outputs=1, attended=9, cached=5)


def test_every_cost_of_a_tiny_model_is_what_one_gets_by_hand() -> None:
    costs = step_costs(TINY, TINY_BYTES, {0: WORK}, position_bytes=64)
    # A quantised row of 32 takes 32 bytes, a scale and two sums: 44. A row of 64 takes 88.
    by_hand = {
        ("embed", -1): Cost("2 → 2×32", weight_bytes=2 * 10, activation_bytes=256),
        ("rope_angles", -1): Cost("2 → 2×16", flops=3 * 16, activation_bytes=128),
        ("attention_norm", 1): Cost("2×32", flops=256, weight_bytes=128, activation_bytes=512),
        ("attention_input", 1): Cost("2×32", flops=256, activation_bytes=256 + 88),
        ("qkv", 1): Cost(
            "2×32 · 32×64", int8_operations=8192, weight_bytes=2 * 1110, activation_bytes=88 + 512, rows=2
        ),
        ("rope", 1): Cost("2×3×16", flops=2 * 3 * 8 * 6, activation_bytes=2 * 384 + 128),
        ("kv_write", 1): Cost("2×2×16", kv_bytes=2 * 64, activation_bytes=256),
        # 9 pairs × 2 heads × (16 multiply-adds for the score, 16 for the values, 4 for the softmax).
        ("attention", 1): Cost("2×2×16 over 5×1×16", flops=18 * (32 + 32 + 4), kv_bytes=5 * 64, activation_bytes=512),
        ("attention_output_input", 1): Cost("2×32", flops=256, activation_bytes=256 + 88),
        ("attention_output", 1): Cost(
            "2×32 · 32×32", int8_operations=4096, weight_bytes=2 * 10**4, activation_bytes=88 + 256, rows=2
        ),
        ("attention_residual", 1): Cost("2×32", flops=64, activation_bytes=768),
        ("ffn_norm", 1): Cost("2×32", flops=256, weight_bytes=128, activation_bytes=512),
        ("ffn_input", 1): Cost("2×32", flops=256, activation_bytes=256 + 88),
        ("gate_up", 1): Cost(
            "2×32 · 32×128", int8_operations=16384, weight_bytes=2 * 1100000, activation_bytes=88 + 1024, rows=2
        ),
        ("activate", 1): Cost("2×128 → 2×64", flops=640, activation_bytes=1024 + 512),
        ("down_input", 1): Cost("2×64", flops=512, activation_bytes=512 + 176),
        ("down", 1): Cost(
            "2×64 · 64×32", int8_operations=8192, weight_bytes=2 * 10**7, activation_bytes=176 + 256, rows=2
        ),
        ("ffn_residual", 1): Cost("2×32", flops=64, activation_bytes=768),
        ("take_rows", -1): Cost("2×32 → 1×32", activation_bytes=256),
        ("output_norm", -1): Cost("1×32", flops=128, weight_bytes=128, activation_bytes=256),
        ("head_input", -1): Cost("1×32", flops=128, activation_bytes=128 + 44),
        ("logits", -1): Cost("1×32 · 32×96", int8_operations=6144, weight_bytes=960, activation_bytes=44 + 384, rows=1),
    }
    assert {key: costs[key] for key in by_hand} == by_hand
    assert {key for key in costs if key[1] != 0} == set(by_hand)
    assert {name for name, layer in costs if layer == 0} == {name for name, layer in by_hand if layer == 1}
    assert costs["down", 0].weight_bytes == 10**7  # each layer has its own matrices


def test_a_head_of_its_own_is_what_the_logits_read() -> None:
    costs = step_costs(TINY, {**TINY_BYTES, "output.weight": 777}, {0: WORK}, position_bytes=64)
    assert costs["logits", -1].weight_bytes == 777
    assert costs["embed", -1].weight_bytes == 20


def test_float32_keys_and_values_take_twice_the_bytes() -> None:
    half, full = (step_costs(TINY, TINY_BYTES, {0: WORK}, position_bytes=2 * 16 * size) for size in (2, 4))
    assert sum(cost.kv_bytes for cost in half.values()) > 0
    assert all(full[key].kv_bytes == 2 * half[key].kv_bytes for key in half)


@pytest.mark.parametrize("tokens", [1, 7])
def test_a_step_reads_the_whole_file_once(smollm2_path: Path, tokens: int) -> None:
    """Every tensor's bytes, and one row of the embedding for each token: the head is tied to it."""
    with open_gguf(smollm2_path) as gguf:
        config = read_config(gguf)
        weight_bytes = {name: tensor.nbytes for name, tensor in gguf.tensors.items()}
        row_bytes = int(gguf.tensors["token_embd.weight"].data[0].nbytes)
    costs = step_costs(config, weight_bytes, {0: StepWork(tokens, 1, tokens, tokens)}, position_bytes=64)
    assert sum(cost.weight_bytes for cost in costs.values()) == sum(weight_bytes.values()) + tokens * row_bytes


def test_the_costs_of_what_other_families_have() -> None:
    """Two layers, of which the first attends a window of 3: the two tokens at 3 and 4 attend 3 each, of 4 positions."""
    norms = tuple(f"blk.{{l}}.{name}.weight" for name in ("attn_q_norm", "post_attention_norm", "post_ffw_norm"))
    config = plain_config(
        tensors=(*norms, "position_embd.weight"),
        layer_norm=True,
        activation="gelu",
        gated=False,
        ropes=(Rope(1e4, 8), Rope(1e6, 8)),
        rope_of_layer=(1, -1),
        windows=(3, 0),
        attention_cap=2.0,
        logits_cap=3.0,
        embedding_scale=2.0,
    )
    costs = step_costs(config, TINY_BYTES, {0: WORK, 3: StepWork(2, 1, 6, 4)}, position_bytes=64)
    by_hand = {
        ("embed", -1): Cost("2 → 2×32", flops=64, weight_bytes=2 * 10, activation_bytes=256),
        ("add_positions", -1): Cost("2×32", flops=64, activation_bytes=768),
        ("rope_angles", -1): Cost("2 → 2×16", flops=3 * 16, activation_bytes=128),
        ("attention_norm", 0): Cost("2×32", flops=448, weight_bytes=256, activation_bytes=512),
        ("head_norm", 0): Cost("2×3×16", flops=384, weight_bytes=128, activation_bytes=768),
        ("rope", 0): Cost("2×3×8", flops=2 * 3 * 4 * 6, activation_bytes=2 * 192 + 64),
        ("rope", 1): Cost("2×3×8"),
        ("attention", 0): Cost("2×2×16 over 4×1×16", flops=12 * (64 + 10), kv_bytes=4 * 64, activation_bytes=512),
        ("attention", 1): Cost("2×2×16 over 5×1×16", flops=18 * (64 + 10), kv_bytes=5 * 64, activation_bytes=512),
        ("attention_post_norm", 0): Cost("2×32", flops=448, weight_bytes=256, activation_bytes=512),
        ("gate_up", 0): Cost(
            "2×32 · 32×64", int8_operations=8192, weight_bytes=10**6, activation_bytes=88 + 512, rows=2
        ),
        ("activate", 0): Cost("2×64 → 2×64", flops=9 * 128, activation_bytes=1024),
        ("ffn_post_norm", 0): Cost("2×32", flops=448, weight_bytes=256, activation_bytes=512),
        ("logits_softcap", -1): Cost("1×96", flops=576, activation_bytes=768),
    }
    assert {key: costs[key] for key in by_hand} == by_hand


PIECES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=5)


@given(PIECES, st.integers(0, 9))
def test_the_work_of_a_ragged_batch_is_what_naive_counting_finds(pieces: list[tuple[int, int]], window: int) -> None:
    batch = make_batch([Piece(start, [1] * count, list(range(4))) for start, count in pieces])
    attended = read = 0
    for start, count in pieces:
        positions = set()
        for position in range(start, start + count):
            for other in range(position + 1):
                if not window or position - other < window:
                    attended += 1
                    positions.add(other)
        read += len(positions)
    expected = StepWork(sum(count for _, count in pieces), len(pieces), attended, read)
    assert step_work(batch, window) == expected
