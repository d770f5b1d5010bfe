"""A random model of a few hundred kilobytes, of any family, written as a GGUF by the ``gguf`` package's own writer.

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

from support.weights import LAYOUTS, NUMBERS, as_numbers, payload_bytes

Metadata = dict[str, Any]
Tensors = dict[str, tuple[npt.NDArray[Any], str]]  # values, or blocks as bytes; the type's name

LEVELS = {
    "Q4_0": 16.0,
    "Q4_1": 16.0,
    "Q5_0": 32.0,
    "Q5_1": 32.0,
    "Q8_0": 256.0,
    "Q2_K": 48.1,
    "Q3_K": 150.4,
    "Q4_K": 894.0,
    "Q5_K": 1826.0,
    "Q6_K": 4728.0,
    "IQ4_NL": 232.5,
    "IQ4_XS": 4331.8,
}
"""For d = 1, how widely the values of random bytes are spread: as evenly distributed ones over so long an interval."""
MINIMUM = {"Q4_1": -7.5, "Q5_1": -15.5, "Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}
"""The second scale, in terms of the first, that makes the mean zero."""


class Structure(NamedTuple):
    """Which tensors the models of a family have, as the converters of llama.cpp write them; else as llama's."""

    biased: tuple[str, ...] = ()  # matrices and norms with a bias
    fused: bool = False  # Q, K and V in one matrix; gate and up in one
    gated: bool = True
    head_norms: bool = False
    post_norms: bool = False
    positions: bool = False


STRUCTURES = {
    "llama": Structure(),
    "smollm3": Structure(),
    "qwen2": Structure(biased=("attn_q", "attn_k", "attn_v")),
    "qwen3": Structure(head_norms=True),
    "gemma2": Structure(post_norms=True),
    "gemma3": Structure(post_norms=True, head_norms=True),
    "phi3": Structure(fused=True),
    "gpt2": Structure(
        biased=("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down", "output_norm"),
        fused=True,
        gated=False,
        positions=True,
    ),
}


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
    layout = LAYOUTS[name]
    if name in NUMBERS:
        values = (random_numbers(seed + "/values", rows * columns) - 0.5) * (12 / columns) ** 0.5
        return as_numbers(name, values).reshape(rows, -1)
    count = rows * columns // layout.weights
    scale = (0.5 + random_numbers(seed + "/scale", count)) / (LEVELS[name] / 12**0.5 * columns**0.5)
    blocks = np.empty((count, layout.bytes), np.uint8)
    for half, factor in zip(layout.halves, (1.0, MINIMUM.get(name)), strict=False):
        blocks[:, half : half + 2] = (factor * scale).astype("<f2")[:, None].view(np.uint8)
    payload = payload_bytes(name)
    blocks[:, payload] = random_bytes(seed + "/payload", count * len(payload)).reshape(count, -1)
    return blocks.reshape(rows, -1)


def tiny_metadata(sizes: TinySizes, architecture: str = "llama") -> Metadata:
    """What such a model's file says about itself."""
    own = {
        "block_count": sizes.num_layers,
        "context_length": sizes.context_length,
        "embedding_length": sizes.width,
        "feed_forward_length": sizes.ffn_width,
        "attention.head_count": sizes.num_heads,
        "attention.head_count_kv": sizes.num_kv_heads,
        "attention.key_length": sizes.head_dim,
        "attention.value_length": sizes.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": sizes.head_dim,
        "rope.freq_base": 10_000.0,
        "vocab_size": sizes.vocab_size,
    }
    if architecture == "gpt2":
        absent = [key for key in own if key.startswith("rope.") or key.endswith(("_kv", "_length", "rms_epsilon"))]
        kept = ("context_length", "embedding_length", "feed_forward_length")
        own = {key: value for key, value in own.items() if key not in absent or key in kept}
        own["attention.layer_norm_epsilon"] = 1e-5
    general = {"general.architecture": architecture, "general.name": "tiny"}
    return {**general, **{f"{architecture}.{key}": value for key, value in own.items()}}


def tiny_tensors(
    sizes: TinySizes,
    formats: tuple[str, ...] = ("Q4_1",),
    tied: bool = True,
    norm_type: str = "F32",
    seed: str = "tiny",
    architecture: str = "llama",
) -> Tensors:
    """All tensors. The matrices take in turn those of the formats whose blocks fit into their rows."""
    structure = STRUCTURES[architecture]
    tensors: Tensors = {}

    def bias(name: str, size: int) -> None:
        if name.split(".")[-2] in structure.biased:
            place = name.removesuffix("weight") + "bias"
            tensors[place] = ((random_numbers(f"{seed}/{place}", size) - 0.5).astype(np.float32), "F32")

    def matrix(name: str, rows: int, columns: int) -> None:
        fitting = [each for each in formats if columns % LAYOUTS[each].weights == 0]
        block_format = fitting[len(tensors) % len(fitting)]
        tensors[name] = (random_blocks(f"{seed}/{name}", block_format, rows, columns), block_format)
        bias(name, rows)

    def norm(name: str, size: int = sizes.width) -> None:
        values = 0.5 + random_numbers(f"{seed}/{name}", size)
        tensors[name] = (values.astype({"F32": np.float32, "F16": np.float16}[norm_type]), norm_type)
        bias(name, size)

    queries, keys = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    matrix("token_embd.weight", sizes.vocab_size, sizes.width)
    if structure.positions:
        rows = random_numbers(f"{seed}/positions", sizes.context_length * sizes.width) - 0.5
        tensors["position_embd.weight"] = (rows.astype(np.float32).reshape(-1, sizes.width) / 8, "F32")
    for layer in range(sizes.num_layers):
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm.weight")
        if structure.fused:
            matrix(prefix + "attn_qkv.weight", queries + 2 * keys, sizes.width)
        else:
            matrix(prefix + "attn_q.weight", queries, sizes.width)
            matrix(prefix + "attn_k.weight", keys, sizes.width)
            matrix(prefix + "attn_v.weight", keys, sizes.width)
        if structure.head_norms:
            norm(prefix + "attn_q_norm.weight", sizes.head_dim)
            norm(prefix + "attn_k_norm.weight", sizes.head_dim)
        matrix(prefix + "attn_output.weight", sizes.width, queries)
        if structure.post_norms:
            norm(prefix + "post_attention_norm.weight")
        norm(prefix + "ffn_norm.weight")
        if structure.fused:
            matrix(prefix + "ffn_up.weight", (1 + structure.gated) * sizes.ffn_width, sizes.width)
        else:
            matrix(prefix + "ffn_gate.weight", sizes.ffn_width, sizes.width)
            matrix(prefix + "ffn_up.weight", sizes.ffn_width, sizes.width)
        matrix(prefix + "ffn_down.weight", sizes.width, sizes.ffn_width)
        if structure.post_norms:
            norm(prefix + "post_ffw_norm.weight")
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
    metadata = tiny_metadata(sizes, options.get("architecture", "llama"))
    return write_gguf(path, metadata, tiny_tensors(sizes, **options))
