"""What each type of the KV cache costs in exactness: KL(reference ‖ closed) over fixed prompts, in nats a position.

In: a GGUF file; the fixture with its prompts' ids. Out: for each type the bytes of a position, the mean and greatest
divergence, and how often the likeliest token is the reference's. The reference run has no int8 anywhere; in the closed
one activations are int8, so that float32 keys and values have an error, too.

    PYTHONPATH=tests python benchmarks/kv_error.py SmolLM2-135M-Instruct.Q4_1.gguf tests/fixtures/prompts.json
"""

import json
import sys
from pathlib import Path

import numpy as np

from cutaway.formats.gguf import open_gguf
from cutaway.memory.kv_cache import position_bytes
from cutaway.model.loader import load_model
from cutaway.model.reference import load_reference
from cutaway.ops.cpu.kv_tiles import KV_FORMATS
from support.logprobs import closed_logprobs, divergences, reference_logprobs


def main(model: Path, fixture: Path) -> None:
    """Measure and print."""
    prompts = {each["name"]: each["ids"] for each in json.loads(fixture.read_text())["prompts"]}
    with open_gguf(model) as gguf:
        exact = reference_logprobs(*load_reference(gguf), prompts)
        loaded = load_model(gguf, threads=2)
    print("| `kv_dtype` | bytes a position | KL, mean | KL, greatest | same likeliest token |")
    print("|---|---|---|---|---|")
    for name in KV_FORMATS:
        ours = closed_logprobs(loaded, prompts, name)
        each = divergences(exact, ours)
        same = np.concatenate([exact[prompt].argmax(1) == ours[prompt].argmax(1) for prompt in prompts])
        print(
            f"| `{name}` | {position_bytes(loaded.config, name):,} | {each.mean():.1e} | {each.max():.1e} "
            f"| {100 * same.mean():.1f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
