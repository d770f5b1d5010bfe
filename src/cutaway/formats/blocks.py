"""Block formats: how the weights of a tensor are laid out as bytes, and the float32 values that they mean.

A row is a sequence of blocks of ``block_size`` elements, each stored in ``bytes_per_block`` bytes. In: the
bytes of rows, ``[..., bytes] uint8``. Out: their values, ``[..., elements] float32``. Numbers and sizes are those of
GGML (``ggml.h``, ``ggml-common.h``); what a block's bytes mean is defined in ``blocks_of_32`` and ``blocks_of_256``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats import blocks_of_32, blocks_of_256
from cutaway.formats.blocks_of_32 import Bytes, Float32


@dataclass(frozen=True)
class BlockType:
    """A block format: ``block_size`` elements of a row in ``bytes_per_block`` bytes.

    ``definition`` maps blocks ``[n, bytes_per_block] uint8`` to ``[n, block_size] float32``. It is ``None``
    for formats of which only the size is known: their tensors can be located, not read.
    """

    name: str
    ggml_type: int
    block_size: int
    bytes_per_block: int
    definition: Callable[[Bytes], Float32] | None = None


# Numbers 4, 5, 31 to 33 and 36 to 38 belonged to formats that GGML has withdrawn.
BLOCK_TYPES: Mapping[int, BlockType] = MappingProxyType(
    {
        block_type.ggml_type: block_type
        for block_type in (
            BlockType("F32", 0, 1, 4, blocks_of_32.f32),
            BlockType("F16", 1, 1, 2, blocks_of_32.f16),
            BlockType("Q4_0", 2, 32, 18, blocks_of_32.q4_0),
            BlockType("Q4_1", 3, 32, 20, blocks_of_32.q4_1),
            BlockType("Q5_0", 6, 32, 22, blocks_of_32.q5_0),
            BlockType("Q5_1", 7, 32, 24, blocks_of_32.q5_1),
            BlockType("Q8_0", 8, 32, 34, blocks_of_32.q8_0),
            BlockType("Q8_1", 9, 32, 36),
            BlockType("Q2_K", 10, 256, 84, blocks_of_256.q2_k),
            BlockType("Q3_K", 11, 256, 110, blocks_of_256.q3_k),
            BlockType("Q4_K", 12, 256, 144, blocks_of_256.q4_k),
            BlockType("Q5_K", 13, 256, 176, blocks_of_256.q5_k),
            BlockType("Q6_K", 14, 256, 210, blocks_of_256.q6_k),
            BlockType("Q8_K", 15, 256, 292),
            BlockType("IQ2_XXS", 16, 256, 66),
            BlockType("IQ2_XS", 17, 256, 74),
            BlockType("IQ3_XXS", 18, 256, 98),
            BlockType("IQ1_S", 19, 256, 50),
            BlockType("IQ4_NL", 20, 32, 18, blocks_of_32.iq4_nl),
            BlockType("IQ3_S", 21, 256, 110),
            BlockType("IQ2_S", 22, 256, 82),
            BlockType("IQ4_XS", 23, 256, 136, blocks_of_256.iq4_xs),
            BlockType("I8", 24, 1, 1),
            BlockType("I16", 25, 1, 2),
            BlockType("I32", 26, 1, 4),
            BlockType("I64", 27, 1, 8),
            BlockType("F64", 28, 1, 8),
            BlockType("IQ1_M", 29, 256, 56),
            BlockType("BF16", 30, 1, 2, blocks_of_32.bf16),
            BlockType("TQ1_0", 34, 256, 54),
            BlockType("TQ2_0", 35, 256, 66),
            BlockType("MXFP4", 39, 32, 17),
            BlockType("NVFP4", 40, 64, 36),
            BlockType("Q1_0", 41, 128, 18),
            BlockType("Q2_0", 42, 64, 18),
        )
    }
)


BY_NAME: Mapping[str, BlockType] = MappingProxyType({known.name: known for known in BLOCK_TYPES.values()})


def dequantize(block_type: BlockType, raw: Bytes) -> Float32:
    """Rows of ``B`` blocks: ``[..., B · bytes_per_block] uint8`` → ``[..., B · block_size] float32``.

    Infinite and NaN scales are carried through as IEEE 754 arithmetic has it. Raises ``ModelFileError`` for a
    format without a definition and ``ValueError`` when ``raw`` isn't rows of whole blocks.
    """
    if block_type.definition is None:
        supported = ", ".join(known.name for known in BLOCK_TYPES.values() if known.definition)
        raise ModelFileError(
            f"block format {block_type.name} cannot be read; supported are {supported}. "
            "Use a file of the same model in one of these formats."
        )
    if raw.dtype != np.uint8 or raw.ndim == 0 or raw.shape[-1] % block_type.bytes_per_block:
        raise ValueError(
            f"raw is {raw.dtype} {list(raw.shape)}; {block_type.name} needs uint8 rows "
            f"whose length is a multiple of {block_type.bytes_per_block} bytes"
        )
    n_blocks = raw.shape[-1] // block_type.bytes_per_block
    blocks = np.ascontiguousarray(raw).reshape(-1, block_type.bytes_per_block)
    with np.errstate(invalid="ignore", over="ignore"):
        values = block_type.definition(blocks)
    return values.reshape(*raw.shape[:-1], n_blocks * block_type.block_size)
