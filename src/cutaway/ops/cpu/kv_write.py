"""The step's keys and values go into the cache, each token into its slot of its sequence's pages.

In: qkv rows, positions, block tables. Out: the KV cache, written in place.
"""

from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.kv_tiles import SUBTILE, KVCache
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import call_kernel


@inner_jit
def subtile_index(batch: Batch, kv: KVCache, sequence: int, subtile: int) -> int:
    """Where in the pool the sequence's sub-tile number ``subtile`` (position // 16) lies."""
    page = batch.block_tables[sequence, subtile // kv.page_subtiles]
    return page * kv.page_subtiles + subtile % kv.page_subtiles


@jit
def kv_write(
    team: Team,
    qkv: Floats,
    batch: Batch,
    kv: KVCache,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
) -> None:
    """Write the K and V heads of qkv [T, (H + 2 Hkv) · Dh] at each token's position."""
    for t in share(team, qkv.shape[0]):
        position = batch.positions[t]
        subtile, slot = position // SUBTILE, position % SUBTILE
        base = layer * kv.layer_bytes + subtile_index(batch, kv, batch.sequences[t], subtile) * kv.subtile_bytes
        row = qkv.ctypes.data + t * qkv.strides[0]
        for head in range(num_kv_heads):
            target = base + head * kv.head_bytes
            call_kernel(
                kv.write,
                (
                    row + 4 * head_dim * (num_heads + head),
                    row + 4 * head_dim * (num_heads + num_kv_heads + head),
                    head_dim,
                    slot,
                    kv.keys + target,
                    kv.values + target,
                ),
            )
    barrier(team)
