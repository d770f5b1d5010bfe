"""The forward: token ids of a ragged batch in, logits of the wanted rows out. This is the whole computation of a step.

It is written once, over the operations named in the import below, which are looked up among this module's globals.
There are five ways to run it, and they differ in nothing but that table:

    closed      ``forward_compiled``: one compiled function over all layers, without the GIL
    timed       ``forward_timed``: the same, its taps bound to the cycle counter, and a stamp before the first operation
    tapped      ``forward_tapped``: the same, its taps stop the threads where Python wants to look
    open        ``rebind({"tap": …})``: this very code object run by CPython over the compiled operations; same bits
    reference   ``rebind(ops.reference.TABLE)``: over NumPy in float64; the definition of right
"""

import types
from collections.abc import Callable, Mapping
from typing import Any

from cutaway.model.records import Model, Workspace
from cutaway.ops.cpu import (
    activate,
    add_positions,
    add_rows,
    attention,
    embed,
    head_norm,
    kv_write,
    matmul,
    norm,
    quantize_rows,
    rope,
    rope_angles,
    softcap,
    take_rows,
    tap,
)
from cutaway.ops.cpu.arrays import Batch
from cutaway.ops.cpu.clock import embed_timed
from cutaway.ops.cpu.kv_tiles import KVCache
from cutaway.ops.cpu.tap import clock_tap, stop_tap
from cutaway.ops.cpu.team import Team
from cutaway.ops.kernel_cache import root_jit


def forward(team: Team, model: Model, batch: Batch, kv: KVCache, work: Workspace) -> None:
    """One step: logits of ``batch.output_rows`` into ``work.logits[:O]``; keys and values of all T tokens into ``kv``.

    Dimensions: T tokens, O output rows, D model width, H query heads, Hkv key/value heads of Dh, F feed-forward width,
    V vocabulary, G tables of R rotary angles. An operation whose record is empty does nothing: a model without norms of
    its heads, say, or without rotary positions.
    """
    T, O = batch.tokens.shape[0], batch.output_rows.shape[0]
    H, Hkv, Dh, R = model.num_heads, model.num_kv_heads, model.head_dim, model.rotary_dim
    x, h, angles = work.x[:T], work.h[:T], work.angles[:T]  # [T, D], [T, D], [T, G R]
    qkv, attended = work.qkv[:T], work.attended[:T]  # [T, (H + 2 Hkv) Dh], [T, H Dh]
    gate_up, gated = work.gate_up[:T], work.gated[:T]  # [T, 2F] or [T, F], [T, F]
    last, normed, logits = work.last[:O], work.h[:O], work.logits[:O]  # [O, D], [O, D], [O, V]

    embed(team, model.embedding, batch.tokens, model.embedding_scale, x)
    tap(team, "embed", -1, x)
    add_positions(team, model.position_rows, batch.positions, x)
    tap(team, "add_positions", -1, x)
    rope_angles(team, batch.positions, model.inverse_frequencies, model.magnitudes, angles)
    tap(team, "rope_angles", -1, angles)
    for layer in range(model.num_layers):
        weights, window, table = model.layers[layer], model.windows[layer], model.rope_table[layer]
        norm(team, x, model.attention_norm[layer], h)
        tap(team, "attention_norm", layer, h)
        quantize_rows(team, h, work.activation)
        tap(team, "attention_input", layer, work.activation.q)
        matmul(team, weights[0:3], work.activation, work.panels, qkv)
        tap(team, "qkv", layer, qkv)
        head_norm(team, qkv, model.query_norm[layer], model.key_norm[layer], H, Hkv, Dh)
        tap(team, "head_norm", layer, qkv)
        rope(team, qkv, angles, table, R, H + Hkv, Dh, model.rope_interleaved)
        tap(team, "rope", layer, qkv)
        kv_write(team, qkv, batch, kv, layer, H, Hkv, Dh)
        tap(team, "kv_write", layer, qkv)
        scale, cap = model.attention_scale, model.attention_cap
        attention(team, qkv, batch, kv, layer, H, Hkv, Dh, window, scale, cap, work.scratch, attended)
        tap(team, "attention", layer, attended)
        quantize_rows(team, attended, work.activation)
        tap(team, "attention_output_input", layer, work.activation.q)
        matmul(team, weights[3:4], work.activation, work.panels, h)
        tap(team, "attention_output", layer, h)
        norm(team, h, model.attention_post_norm[layer], h)
        tap(team, "attention_post_norm", layer, h)
        add_rows(team, x, h)
        tap(team, "attention_residual", layer, x)

        norm(team, x, model.ffn_norm[layer], h)
        tap(team, "ffn_norm", layer, h)
        quantize_rows(team, h, work.activation)
        tap(team, "ffn_input", layer, work.activation.q)
        matmul(team, weights[4:6], work.activation, work.panels, gate_up)
        tap(team, "gate_up", layer, gate_up)
        activate(team, gate_up, model.activation, gated)
        tap(team, "activate", layer, gated)
        quantize_rows(team, gated, work.activation)
        tap(team, "down_input", layer, work.activation.q)
        matmul(team, weights[6:7], work.activation, work.panels, h)
        tap(team, "down", layer, h)
        norm(team, h, model.ffn_post_norm[layer], h)
        tap(team, "ffn_post_norm", layer, h)
        add_rows(team, x, h)
        tap(team, "ffn_residual", layer, x)
    take_rows(team, x, batch.output_rows, last)
    tap(team, "take_rows", -1, last)
    norm(team, last, model.output_norm[0], normed)
    tap(team, "output_norm", -1, normed)
    quantize_rows(team, normed, work.activation)
    tap(team, "head_input", -1, work.activation.q)
    matmul(team, model.head, work.activation, work.panels, logits)
    tap(team, "logits", -1, logits)
    softcap(team, logits, model.logits_cap)
    tap(team, "logits_softcap", -1, logits)


def rebind(table: Mapping[str, Any], name: str = "forward_open") -> Callable[[Any, Any, Any, Any, Any], None]:
    """The forward's own code object over other operations: ``table`` maps some of their names to replacements."""
    function = types.FunctionType(forward.__code__, {**forward.__globals__, **table}, name)
    function.__qualname__ = name  # the name under which compiled code is kept
    function.__annotations__ = dict(forward.__annotations__)
    return function


forward_compiled = root_jit(forward)
forward_timed = root_jit(rebind({"tap": clock_tap, "embed": embed_timed}, "forward_timed"))
forward_tapped = root_jit(rebind({"tap": stop_tap}, "forward_tapped"))
