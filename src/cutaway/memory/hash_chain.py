"""The hash chain of a sequence: for each full block of ids, a key that stands for all ids up to its end.

In: a salt, and ids as they come. Out: the keys. The hash of a block is taken over the hash of the block before it and
its own ids, so equal keys mean equal prefixes; the first is taken over the salt, so that two salts share nothing.
"""

import struct
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

Hash = Callable[[bytes], bytes]


def blake2b_256(content: bytes) -> bytes:
    """BLAKE2b with 32 bytes of result (RFC 7693): nobody can make two prefixes of one hash."""
    return blake2b(content, digest_size=32).digest()


class BlockKey(NamedTuple):
    """What names the content of a full block."""

    digest: bytes  # of the salt and all ids up to the block's end
    ids: bytes  # the block's own, int32 little-endian: a hit is checked against them


class HashChain:
    """The keys of a sequence's full blocks, each computed once."""

    def __init__(self, salt: bytes, block_length: int, digest: Hash = blake2b_256) -> None:
        """block_length: tokens of a block. digest: the hash."""
        self.salt = salt
        self.keys: list[BlockKey] = []
        self._digest = digest
        self._root = digest(b"salt" + salt)
        self._packed = struct.Struct(f"<{block_length}i")
        self._block_length = block_length

    def extend(self, ids: Sequence[int], num_blocks: int) -> None:
        """Have keys of the first ``num_blocks`` blocks at least. ids: the whole sequence; it only ever grows."""
        for number in range(len(self.keys), num_blocks):
            first = number * self._block_length
            own = self._packed.pack(*ids[first : first + self._block_length])
            before = self.keys[-1].digest if self.keys else self._root
            self.keys.append(BlockKey(self._digest(b"block" + before + own), own))

    def fork(self) -> "HashChain":
        """A chain of its own for a sequence that has the same ids up to now."""
        other = HashChain(self.salt, self._block_length, self._digest)
        other.keys = list(self.keys)
        return other
