"""Run as a program: sample many rows and print the instructions used and a digest of every id and every logprob's
bits.
"""

import hashlib

import numpy as np

from cutaway.ops.cpu.threads import float_environment
from cutaway.ops.simd import LOWERING
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row

KINDS = (
    {"logprobs": 20},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.7, "top_k": 50},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"temperature": 1.3, "top_k": 200, "top_p": 0.9, "min_p": 0.01, "logprobs": 0},
)


def main() -> None:
    digest = hashlib.sha256()
    rng = np.random.default_rng(2024)
    with float_environment():
        for V in (13, 1000, 49_152, 50_257):
            scratch = SamplerScratch.allocate(V)
            for position in range(48):
                # From uniform numbers by exact operations: NumPy's transcendental functions differ between processors.
                scale = 2.0 ** (position % 8 - 2)
                logits = ((rng.random(V) + rng.random(V) + rng.random(V) - 1.5) * scale * 4).astype(np.float32)
                key = NoiseKey(position - 3, position % 2, position)
                result = sample_row(logits, SamplingParams(**KINDS[position % len(KINDS)]), key, scratch)
                digest.update(np.int64(result.token_id).tobytes())
                for token, value in ((result.token_id, result.logprob), *result.top_logprobs):
                    digest.update(np.int64(token).tobytes() + np.float32(np.nan if value is None else value).tobytes())
    print(LOWERING, digest.hexdigest())


if __name__ == "__main__":
    main()
