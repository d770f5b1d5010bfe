"""One small random model for each family, and for each variant that its files may have.

In: a name of ``CASES``. Out: a GGUF of some hundred kilobytes, always the same bytes. ``CONTROLS`` are changes of one
number of a model's metadata that its logits must show. As a program it writes all of them, and beside each its prompts,
for the oracle, which shares no code with Cutaway:

    PYTHONPATH=tests python -m support.tiny_families FOLDER
"""

import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from support.tiny_llama import Tensors, TinySizes, tiny_metadata, tiny_tensors, write_gguf

SIZES = TinySizes(num_layers=3, width=32 * 6, context_length=512)
PLAIN = SIZES._replace(head_dim=32)  # of families whose heads together are as wide as the model
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


class Case(NamedTuple):
    """A family, sizes, and metadata behind the architecture's prefix that is added, or with None taken away."""

    architecture: str
    sizes: TinySizes = SIZES
    metadata: dict[str, Any] = {}  # noqa: RUF012  (never written)
    tied: bool = True
    divisors: bool = False  # a tensor ``rope_freqs.weight``


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
GEMMA2 = {
    "attention.sliding_window": 37,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 1.5,
    "rope.freq_base": None,
}

CASES = {
    "llama": Case("llama", tied=False),
    "llama3 scaling": Case("llama", divisors=True),
    "linear scaling": Case("llama", metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}),
    "yarn scaling": Case("llama", metadata=YARN),
    "mistral": Case("llama", metadata={"attention.sliding_window": 29}),
    "smollm3": Case("smollm3", SIZES._replace(num_layers=5, head_dim=32)),
    "qwen2": Case("qwen2", PLAIN),
    "qwen3": Case("qwen3", tied=False),
    "gemma2": Case("gemma2", metadata=GEMMA2),
    "gemma3": Case(
        "gemma3",
        SIZES._replace(num_layers=7, num_kv_heads=1),
        {"attention.sliding_window": 37, "rope.freq_base": 1_000_000.0},
    ),
    "phi3": Case("phi3", PLAIN, {"attention.sliding_window": 41, "rope.dimension_count": 24}, tied=False),
    "gpt2": Case("gpt2", PLAIN._replace(num_kv_heads=6)),
}

CONTROLS: dict[str, dict[str, Any]] = {
    "linear scaling": {"rope.scaling.factor": 2.5},
    "yarn scaling": {"rope.scaling.factor": 5.0},
    "mistral": {"attention.sliding_window": 30},
    "llama": {"rope.freq_base": 11_000.0},
    "qwen3": {"attention.layer_norm_rms_epsilon": 1e-3},
    "gemma2": {"attn_logit_softcapping": 2.2},
    "gemma3": {"rope.freq_base_swa": 11_000.0},
    "phi3": {"rope.dimension_count": 32},
    "gpt2": {"attention.layer_norm_epsilon": 1e-3},
}

PROMPTS = {
    f"prompt {number}": [(7 * i * i + (31 + number) * i + number) % SIZES.vocab_size for i in range(length)]
    for number, length in enumerate((1, 2, 5, 16, 17, 31, 40, 64, 66, 97))
}
"""Ten; the longest are beyond every window, tile and page."""


SEEN_IDS = [*range(0, SIZES.vocab_size, 8), SIZES.vocab_size - 1]
"""Of the vocabulary, those whose log-probabilities the fixture keeps."""


def llama3_divisors(rotary_dim: int, base: float = 10_000.0) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The tensor ``rope_freqs.weight`` as llama.cpp's converter writes it for Llama 3's scaling, [R/2]."""
    divisors = []
    for i in range(rotary_dim // 2):
        wavelength = 2 * math.pi * base ** (2 * i / rotary_dim)
        turns = LLAMA3["original_max_position_embeddings"] / wavelength
        if turns > LLAMA3["high_freq_factor"]:
            divisors.append(1.0)
        elif turns < LLAMA3["low_freq_factor"]:
            divisors.append(LLAMA3["factor"])
        else:
            kept = (turns - LLAMA3["low_freq_factor"]) / (LLAMA3["high_freq_factor"] - LLAMA3["low_freq_factor"])
            divisors.append(1 / ((1 - kept) / LLAMA3["factor"] + kept))
    return np.array(divisors, np.float32)


def metadata_of(case: Case, **changes: Any) -> dict[str, Any]:
    """All of a case's metadata, with changes."""
    metadata = tiny_metadata(case.sizes, case.architecture)
    for key, value in {**case.metadata, **changes}.items():
        if value is None:
            metadata.pop(f"{case.architecture}.{key}")
        else:
            metadata[f"{case.architecture}.{key}"] = value
    return metadata


def tensors_of(case: Case, formats: tuple[str, ...] = ("Q8_0", "Q4_1", "Q5_0")) -> Tensors:
    """All of its tensors."""
    tensors = tiny_tensors(case.sizes, formats, case.tied, architecture=case.architecture)
    if case.divisors:
        tensors["rope_freqs.weight"] = (llama3_divisors(case.sizes.head_dim), "F32")
    return tensors


def write_case(path: Path, name: str, **changes: Any) -> Path:
    """The file of a case; changes are of its metadata."""
    case = CASES[name]
    return write_gguf(path, metadata_of(case, **changes), tensors_of(case))


def main(folder: Path) -> None:
    """The files, and ``cases.json``: what the oracle has to know besides."""
    folder.mkdir(exist_ok=True)
    for name in CASES:
        write_case(folder / f"{name}.gguf", name)
    scaled = {name: LLAMA3 for name, case in CASES.items() if case.divisors}
    description = {"names": list(CASES), "llama3": scaled, "prompts": PROMPTS, "seen_ids": SEEN_IDS}
    (folder / "cases.json").write_text(json.dumps(description))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
