"""Fixed runs and the digests of their logits: what ``numerics_version`` stands for.

In: SmolLM2's file; small random models are written beside it, one of each family and variant. Out: for each run a
SHA-256 over the bytes of all logits, little-endian float32, in the order of sequence and position. As a program it
prints them, with the lowering, as JSON:

    PYTHONPATH=tests python -m support.golden SmolLM2-135M-Instruct.Q4_1.gguf
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from cutaway.formats.gguf import open_gguf
from cutaway.model.loader import load_model
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.ops.simd import LOWERING
from support.rig import Logits, Pages, Part, Step, run_schedule
from support.tiny_families import CASES, write_case
from support.tiny_llama import TinySizes, write_tiny_llama

SEQUENCES = [[(7 * i * i + 31 * i + 1) % 211 for i in range(length)] for length in (133, 18, 1)]
"""Ids that both vocabularies have; two tiles and more, a page and more, one token."""

STEPS: list[Step] = [
    [Part(0, 0, 70), Part(1, 0, 17)],
    [Part(2, 0, 1), Part(0, 70, 132), Part(1, 17, 18)],
    [Part(0, 132, 133)],
]


QWEN2_FORMATS = ("Q6_K", "Q5_0", "Q4_K", "Q5_1", "Q5_K", "Q8_0", "Q4_1")
OTHER_FORMATS = ("Q2_K", "IQ4_NL", "Q3_K", "F16", "IQ4_XS", "BF16", "F32")


def digest(logits: Logits) -> str:
    """Of all logits."""
    sha = hashlib.sha256()
    for place in sorted(logits):
        sha.update(logits[place].astype("<f4").tobytes())
    return sha.hexdigest()


def golden_runs(smollm2: Path) -> dict[str, str]:
    """The digest of each run: every block format and family, every type of the cache, a tied and an untied head."""
    digests = {}
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny_llama(
            Path(folder) / "tiny.gguf", formats=("Q4_0", "Q8_0", "Q4_1"), tied=False, norm_type="F16"
        )
        tiny_qwen2 = write_tiny_llama(
            Path(folder) / "tiny_qwen2.gguf",
            TinySizes(num_layers=3, width=256, ffn_width=256 * 3),
            formats=QWEN2_FORMATS,
            architecture="qwen2",
        )
        tiny_others = write_tiny_llama(
            Path(folder) / "tiny_others.gguf",
            TinySizes(num_layers=3, width=256, ffn_width=256 * 3),
            formats=OTHER_FORMATS,
            tied=False,
        )
        runs = (("smollm2", smollm2), ("tiny", tiny), ("tiny qwen2", tiny_qwen2), ("tiny others", tiny_others))
        for name, path in runs:
            with open_gguf(path) as gguf:
                loaded = load_model(gguf, threads=1)
            for data_type in ("f16", "f32", "int8"):
                logits = run_schedule(loaded, SEQUENCES, STEPS, pages=Pages(data_type=data_type))
                digests[f"{name}, {data_type} cache"] = digest(logits)
        for name in CASES:
            with open_gguf(write_case(Path(folder) / "family.gguf", name)) as gguf:
                loaded = load_model(gguf, threads=1)
            digests[f"family: {name}"] = digest(run_schedule(loaded, SEQUENCES, STEPS))
    return digests


if __name__ == "__main__":
    report = {"numerics_version": NUMERICS_VERSION, "lowering": LOWERING, "sha256": golden_runs(Path(sys.argv[1]))}
    print(json.dumps(report, indent=1))
