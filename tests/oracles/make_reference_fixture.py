"""Write `tests/fixtures/smollm2_reference.npz`: what transformers in float32 says at every position.

Comes in: the GGUF file and the prompts made for it. Goes out, for each prompt NAME of T tokens, with C = 24 + 24 + 1
candidates:

    NAME.ids            [T] int32       the prompt
    NAME.candidates     [T, C] int32    the 24 most likely next tokens, most likely first; 24 drawn at random
                                        over the vocabulary; last, the prompt's own next token (at the last
                                        position: the most likely one)
    NAME.logprobs       [T, C] float32  natural log-probabilities, normalised over the whole vocabulary
    NAME.entropy        [T] float32     entropy of the whole distribution, nats
    NAME.greedy_ids     [32] int32      greedy continuation, not stopped by an end-of-sequence token
    NAME.greedy_margin  [32] float32    logprob of the chosen token minus that of the runner-up, nats: where
                                        it is small, another arithmetic may rightly continue differently
    meta                JSON text       SHA-256 of the file, versions, seed, oracle_error

`oracle_error` is the largest difference between these logprobs and those of the same model with weights and
matrix products in float64: a difference below it says nothing about the implementation under test. With
`--logprobs-only` there are no continuations and no new `oracle_error`; with `--add` what the output has already is
kept, and computed is what the prompts have more.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 transformers gguf
    peers/bin/python tests/oracles/make_reference_fixture.py SmolLM2-135M-Instruct.Q4_1.gguf
    peers/bin/python tests/oracles/make_reference_fixture.py qwen2.5-coder-0.5b-instruct.gguf \\
        --prompts tests/fixtures/qwen2_prompts.json --output tests/fixtures/qwen2_reference.npz
    peers/bin/python tests/oracles/make_reference_fixture.py qwen2.5-coder-1.5b-instruct.gguf \\
        --prompts tests/fixtures/qwen2_prompts.json --output tests/fixtures/qwen2_1.5b_reference.npz --logprobs-only
    peers/bin/python tests/oracles/make_reference_fixture.py gemma3-270m.gguf \\
        --prompts tests/fixtures/gemma3_prompts.json --output tests/fixtures/gemma3_reference.npz
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from oracle_model import FIXTURES, load_oracle, load_prompts, logprobs_at_every_position, sha256_of
from transformers import PreTrainedModel

MOST_LIKELY = 24
RANDOM = 24
GREEDY = 32
SEED = 20240607


def candidates_of(
    logprobs: npt.NDArray[np.float64], ids: list[int], generator: np.random.Generator
) -> npt.NDArray[np.int32]:
    """logprobs: [T, V], ids: [T] → candidate ids [T, C]; ties in the ranking go to the lowest id."""
    T, V = logprobs.shape
    ranked = np.argsort(-logprobs, axis=-1, kind="stable")[:, :MOST_LIKELY]
    drawn = generator.integers(0, V, size=(T, RANDOM))
    following = np.append(ids[1:], ranked[-1, 0])[:, None]
    return np.concatenate([ranked, drawn, following], axis=1).astype(np.int32)


@torch.inference_mode()
def greedy_continuation(
    model: PreTrainedModel, ids: list[int]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The GREEDY tokens after ids and the margin of each, by transformers' own greedy generation."""
    output = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=GREEDY,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.topk(torch.cat(output.logits), 2).values
    chosen = output.sequences[0, len(ids) :].numpy().astype(np.int32)
    return chosen, (best[:, 0] - best[:, 1]).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--prompts", type=Path, default=FIXTURES / "prompts.json")
    parser.add_argument("--output", type=Path, default=FIXTURES / "smollm2_reference.npz")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--logprobs-only", action="store_true", help="no continuations and no oracle_error: less time, half the memory"
    )
    parser.add_argument("--add", action="store_true", help="keep what the output has of prompts with the same ids")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    sha256 = sha256_of(arguments.gguf)
    prompts = load_prompts(sha256, arguments.prompts)
    model = load_oracle(arguments.gguf)
    generator = np.random.default_rng(SEED)
    old: dict[str, npt.NDArray[Any]] = dict(np.load(arguments.output)) if arguments.add else {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    full: dict[str, npt.NDArray[np.float64]] = {}
    for prompt in prompts:
        name, ids = prompt["name"], prompt["ids"]
        if f"{name}.ids" in old and old[f"{name}.ids"].tolist() == ids:
            arrays |= {key: array for key, array in old.items() if key.startswith(f"{name}.")}
            continue
        logprobs = full[name] = logprobs_at_every_position(model, ids)
        candidates = candidates_of(logprobs, ids, generator)
        arrays |= {
            f"{name}.ids": np.array(ids, np.int32),
            f"{name}.candidates": candidates,
            f"{name}.logprobs": np.take_along_axis(logprobs, candidates, axis=1).astype(np.float32),
            f"{name}.entropy": -(np.exp(logprobs) * logprobs).sum(axis=-1).astype(np.float32),
        }
        if not arguments.logprobs_only:
            arrays[f"{name}.greedy_ids"], arrays[f"{name}.greedy_margin"] = greedy_continuation(model, ids)
        print(f"{name:14} T {len(ids):4}  mean entropy {arrays[f'{name}.entropy'].mean():.3f}", flush=True)

    meta: dict[str, Any] = {
        **(json.loads(str(old["meta"])) if old else {}),
        "gguf_sha256": sha256,
        "versions": {name: version(name) for name in ("torch", "transformers", "gguf", "numpy")},
        "seed": SEED,
    }
    if not arguments.logprobs_only:
        double = model.double()
        errors = [
            np.abs(logprobs_at_every_position(double, prompt["ids"]) - full[prompt["name"]]).max()
            for prompt in prompts
            if prompt["name"] in full
        ]
        meta["oracle_error"] = float(max([meta.get("oracle_error", 0.0), *errors]))
    np.savez_compressed(arguments.output, meta=np.array(json.dumps(meta)), **arrays)
    print(json.dumps(meta), f"{arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
