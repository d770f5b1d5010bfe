"""Damage to a file, always the same for one number: bytes and integers changed, parts cut out or doubled, the end lost.

In: the bytes of a sound file, the number of a mutation. Out: other bytes.
"""

import os
import random
import struct

EXAMPLES = int(os.environ.get("CUTAWAY_FUZZ_EXAMPLES", "2000"))
"""How many damaged files a default run reads."""

INTEGERS = [0, 1, 2, 3, 4, 9, 31, 127, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]
TOKENS = [
    b"18446744073709551616",
    b"-1",
    b"-0",
    b"1e9",
    b"1.5",
    b"true",
    b"null",
    b"NaN",
    b'"F32"',
    b"[]",
    b"{}",
    b'"\\ud800"',
]
CHARACTERS = b'0123456789[]{},:" \\\n\xff\xc3'


def mutated(content: bytes, number: int, head: int) -> bytes:
    """The content after one to four changes, most of them within its first ``head`` bytes."""
    rng = random.Random(number)
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if not changed:
            break
        at = rng.randrange(min(head, len(changed)) if rng.random() < 0.8 else len(changed))
        length = rng.randint(1, 64)
        match rng.choice(["byte", "bit", "character", "token", "u32", "u64", "remove", "double", "cut"]):
            case "byte":
                changed[at] = rng.randrange(256)
            case "bit":
                changed[at] ^= 1 << rng.randrange(8)
            case "character":
                changed[at] = rng.choice(CHARACTERS)
            case "token":
                changed[at : at + rng.randint(0, 4)] = rng.choice(TOKENS)
            case "u32":
                changed[at : at + 4] = struct.pack("<I", rng.choice(INTEGERS) & 0xFFFFFFFF)
            case "u64":
                changed[at : at + 8] = struct.pack("<Q", rng.choice(INTEGERS))
            case "remove":
                del changed[at : at + length]
            case "double":
                changed[at:at] = changed[at : at + length]
            case "cut":
                del changed[at + 1 :]
    return bytes(changed)
