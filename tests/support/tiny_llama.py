"""A random llama of a few hundred kilobytes, written as a GGUF by the ``gguf`` package's own writer.

In: sizes (each with another prime), a block format for each matrix, options. Out: metadata and tensors as dictionaries,
which a test may spoil before it writes the file. All bytes come from SHAKE-256, so that they are the same with any
version of NumPy.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

Metadata = dict[str, Any]
Tensors = dict[str, tuple[npt.NDArray[Any], str]]  # values, or blocks as bytes; the type's name

LEVELS = {"Q4_0": 16, "Q4_1": 16, "Q8_0": 256}
PAYLOAD = {"Q4_0": 16, "Q4_1": 16, "Q8_0": 32}


class TinySizes(NamedTuple):
    """Each dimension has a prime of its own; the vocabulary is no multiple of a tile, D differs from H · Dh."""

    num_layers: int = 2
    width: int = 32 * 5
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 48
    ffn_width: int = 32 * 7
    vocab_size: int = 16 * 13 + 3
    context_length: int = 1024


def random_bytes(seed: str, count: int) -> npt.NDArray[np.uint8]:
    """The first ``count`` bytes that SHAKE-256 gives for the seed."""
    return np.frombuffer(hashlib.shake_256(seed.encode()).digest(count), np.uint8)


def random_numbers(seed: str, count: int) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1, multiples of 1/65,535."""
    return random_bytes(seed, 2 * count).view("<u2") / 65535.0


def random_blocks(seed: str, name: str, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Blocks whose values have a mean square of about 1 / columns: [rows, bytes a row]."""
    count = rows * columns // 32
    scale = (0.5 + random_numbers(seed + "/scale", count)) / (LEVELS[name] / 12**0.5 * columns**0.5)
    heads = [scale.astype("<f2")]
    if name == "Q4_1":
        heads.append((-7.5 * scale).astype("<f2"))
    head = np.stack(heads, axis=1).view(np.uint8)
    payload = random_bytes(seed + "/payload", count * PAYLOAD[name]).reshape(count, -1)
    return np.concatenate([head, payload], axis=1).reshape(rows, -1)


def tiny_metadata(sizes: TinySizes) -> Metadata:
    """What a llama's file says about itself."""
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": sizes.num_layers,
        "llama.context_length": sizes.context_length,
        "llama.embedding_length": sizes.width,
        "llama.feed_forward_length": sizes.ffn_width,
        "llama.attention.head_count": sizes.num_heads,
        "llama.attention.head_count_kv": sizes.num_kv_heads,
        "llama.attention.key_length": sizes.head_dim,
        "llama.attention.value_length": sizes.head_dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": sizes.head_dim,
        "llama.rope.freq_base": 10_000.0,
        "llama.vocab_size": sizes.vocab_size,
    }


def tiny_tensors(
    sizes: TinySizes,
    formats: tuple[str, ...] = ("Q4_1",),
    tied: bool = True,
    norm_type: str = "F32",
    seed: str = "tiny",
) -> Tensors:
    """All tensors. The matrices take the formats in turn."""
    tensors: Tensors = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        block_format = formats[len(tensors) % len(formats)]
        tensors[name] = (random_blocks(f"{seed}/{name}", block_format, rows, columns), block_format)

    def norm(name: str) -> None:
        values = 0.5 + random_numbers(f"{seed}/{name}", sizes.width)
        tensors[name] = (values.astype({"F32": np.float32, "F16": np.float16}[norm_type]), norm_type)

    queries, keys = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    matrix("token_embd.weight", sizes.vocab_size, sizes.width)
    for layer in range(sizes.num_layers):
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm.weight")
        matrix(prefix + "attn_q.weight", queries, sizes.width)
        matrix(prefix + "attn_k.weight", keys, sizes.width)
        matrix(prefix + "attn_v.weight", keys, sizes.width)
        matrix(prefix + "attn_output.weight", sizes.width, queries)
        norm(prefix + "ffn_norm.weight")
        matrix(prefix + "ffn_gate.weight", sizes.ffn_width, sizes.width)
        matrix(prefix + "ffn_up.weight", sizes.ffn_width, sizes.width)
        matrix(prefix + "ffn_down.weight", sizes.width, sizes.ffn_width)
    norm("output_norm.weight")
    if not tied:
        matrix("output.weight", sizes.vocab_size, sizes.width)
    return tensors


def write_gguf(path: Path, metadata: Metadata, tensors: Tensors) -> Path:
    """The file. Integers become uint32, floats float32, lists arrays."""
    writer = gguf.GGUFWriter(path, str(metadata.get("general.architecture", "llama")))
    for key, value in metadata.items():
        if key == "general.architecture":
            continue  # the writer has added it
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, (array, type_name) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=gguf.GGMLQuantizationType[type_name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_llama(path: Path, sizes: TinySizes | None = None, **options: Any) -> Path:
    """A sound file; options are those of ``tiny_tensors``."""
    sizes = sizes or TinySizes()
    return write_gguf(path, tiny_metadata(sizes), tiny_tensors(sizes, **options))
