"""Run as a program: sample many rows and print the instructions used and digests of every id and every logprob's bits:
of plain rows, and of rows with all steps, open and closed.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from cutaway.ops.cpu.threads import float_environment
from cutaway.ops.simd import LOWERING
from cutaway.sampling.history import EMPTY_HISTORY, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_open, sample_row, score_row

PLAIN = (
    {"logprobs": 20},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.7, "top_k": 50},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"temperature": 1.3, "top_k": 200, "top_p": 0.9, "min_p": 0.01, "logprobs": 0},
)
ADJUSTED = (
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": 0.3, "logprobs": 5},
    {"logit_bias": {0: 2.3, 7: -1.1, 12: 100}, "top_p": 0.9},
    {"allowed_token_ids": [0, 1, 3, 5, 8, 11], "temperature": 0.6},
    {"temperature": 0, "repetition_penalty": 0.7, "frequency_penalty": -1.9, "logit_bias": {3: 0.1}},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.1, "presence_penalty": -0.3},
)


def rows() -> Iterator[tuple[np.ndarray, NoiseKey, SamplerScratch]]:
    """Rows from uniform numbers by exact operations: NumPy's transcendental functions differ between processors."""
    rng = np.random.default_rng(2024)
    for V in (13, 1000, 49_152, 50_257):
        scratch = SamplerScratch.allocate(V)
        for position in range(48):
            scale = 2.0 ** (position % 8 - 2)
            logits = ((rng.random(V) + rng.random(V) + rng.random(V) - 1.5) * scale * 4).astype(np.float32)
            yield logits, NoiseKey(position - 3, position % 2, position), scratch


def update(digest: Any, result: SampleResult) -> None:
    digest.update(np.int64(result.token_id).tobytes())
    for token, value in ((result.token_id, result.logprob), *result.top_logprobs):
        digest.update(np.int64(token).tobytes() + np.float32(np.nan if value is None else value).tobytes())


def main() -> None:
    plain, adjusted = hashlib.sha256(), hashlib.sha256()

    def tap(name: str, values: np.ndarray) -> None:
        adjusted.update(name.encode() + values.tobytes())

    with float_environment():
        for logits, key, scratch in rows():
            update(plain, sample_row(logits, SamplingParams(**PLAIN[key.position % 6]), key, scratch, EMPTY_HISTORY))
        for logits, key, scratch in rows():
            V, n = logits.size, key.position
            prompt, output = ((np.arange(size) * step % V).astype(np.int32) for size, step in ((99, 5), (n, 3)))
            history = History(prompt, output, np.array([0, V - 1] if n % 3 else [], np.int32))
            params = SamplingParams(**ADJUSTED[n % 6])
            closed = sample_row(logits, params, key, scratch, history)
            assert sample_open(logits, params, key, scratch, history, tap) == closed
            update(adjusted, closed)
            update(adjusted, score_row(logits, closed.token_id, 3, scratch))
    print(LOWERING, plain.hexdigest(), adjusted.hexdigest())


if __name__ == "__main__":
    main()
