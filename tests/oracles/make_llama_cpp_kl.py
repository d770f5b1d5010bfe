"""Write `tests/fixtures/smollm2_llama_cpp_kl.json`: how far llama.cpp is from transformers float32.

Comes in: the GGUF file and prompts.json. Goes out: KL(transformers float32 ‖ llama.cpp) in nats over the
whole vocabulary, for each prompt the mean over its positions, and the mean over all positions of all prompts.
It is the yardstick for an engine that also multiplies in int8: its own figure, computed the same way, should
not be larger.

    python -m venv peers
    CMAKE_ARGS=-DGGML_NATIVE=ON peers/bin/pip install --no-binary llama-cpp-python \\
        torch==2.13.0 transformers gguf llama-cpp-python
    peers/bin/python tests/oracles/make_llama_cpp_kl.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt
import torch
from oracle_model import (
    FIXTURES,
    load_oracle,
    load_prompts,
    log_softmax,
    logprobs_at_every_position,
    sha256_of,
)


def kl_divergence(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Log-probabilities p, q: [T, V] → KL(p ‖ q) [T], nats."""
    divergence: npt.NDArray[np.float64] = (np.exp(p) * (p - q)).sum(axis=-1)
    return divergence


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--output", type=Path, default=FIXTURES / "smollm2_llama_cpp_kl.json")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    sha256 = sha256_of(arguments.gguf)
    prompts = load_prompts(sha256, FIXTURES / "prompts.json")
    model = load_oracle(arguments.gguf)
    peer = llama_cpp.Llama(
        str(arguments.gguf),
        n_ctx=512,
        n_batch=512,
        n_threads=arguments.threads,
        n_threads_batch=arguments.threads,
        logits_all=True,
        verbose=False,
    )
    divergences: dict[str, npt.NDArray[np.float64]] = {}
    for prompt in prompts:
        name, ids = prompt["name"], prompt["ids"]
        peer.reset()
        peer.eval(ids)
        theirs = log_softmax(np.asarray(peer.scores[: len(ids)]))
        divergences[name] = kl_divergence(logprobs_at_every_position(model, ids), theirs)
        print(f"{name:14} T {len(ids):4}  mean KL {divergences[name].mean():.3e}", flush=True)

    fixture = {
        "gguf_sha256": sha256,
        "versions": {name: version(name) for name in ("torch", "transformers", "gguf", "llama_cpp_python")},
        "llama_cpp_system_info": llama_cpp.llama_print_system_info().decode().strip(),
        "unit": "nats",
        "mean_over_positions": float(np.concatenate(list(divergences.values())).mean()),
        "mean_by_prompt": {name: float(divergence.mean()) for name, divergence in divergences.items()},
    }
    arguments.output.write_text(json.dumps(fixture, indent=1) + "\n")
    print(json.dumps(fixture, indent=1))


if __name__ == "__main__":
    main()
