"""Write `tests/fixtures/smollm2_hidden.npz`: what transformers in float32 has between its layers and in its attention.

Comes in: the GGUF file. Goes out, for T tokens, L layers of H heads, and C candidates (the 24 likeliest next tokens of
each position):

    ids                [T] int32
    layers             [N] int32              which of `output_hidden_states` are kept: 0 is the embedding, l + 1
                                              stands behind layer l, and the last behind the last norm
    residual           [N, T, D] float32
    attentions         [L, H, T, T] float32   of `output_attentions`
    candidates         [T, C] int32
    logits             [T, C] float32
    residual_error     [N] float64            of each, the relative distance of float32 from float64 (root mean
    attentions_error   [L] float64            square over the tokens; of the attentions the greatest difference):
    logits_error       [] float64             transformers' own error, and with it the least that a test can ask for
    meta               JSON text              SHA-256 of the file, versions, the text

    peers/bin/python tests/oracles/make_hidden_fixture.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from oracle_model import FIXTURES, load_oracle, sha256_of
from transformers import PreTrainedModel

TEXT = "The capital of France is Paris, which lies on the Seine."
IDS = [504, 3575, 282, 4649, 314, 7042, 28, 527, 5721, 335, 260, 1268, 462, 30]  # the text
KEPT = (0, 1, 2, 10, 20, 29, 30)
LIKELIEST = 24

Found = dict[str, npt.NDArray[Any]]


@torch.inference_mode()
def states_of(model: PreTrainedModel) -> Found:
    found = model(torch.tensor([IDS]), use_cache=False, output_hidden_states=True, output_attentions=True)
    return {
        "residual": np.stack([found.hidden_states[layer][0].numpy() for layer in KEPT]),
        "attentions": np.stack([each[0].numpy() for each in found.attentions]),
        "logits": found.logits[0].numpy(),
    }


def distance(got: npt.NDArray[Any], exact: npt.NDArray[Any]) -> float:
    """got, exact: [T, …]."""
    relative = np.linalg.norm(got - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    return float(np.sqrt((relative**2).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--output", type=Path, default=FIXTURES / "smollm2_hidden.npz")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = load_oracle(arguments.gguf)
    single = states_of(model)
    double = states_of(model.double())
    candidates = np.argsort(-single["logits"], axis=-1, kind="stable")[:, :LIKELIEST].astype(np.int32)
    meta = {
        "gguf_sha256": sha256_of(arguments.gguf),
        "versions": {name: version(name) for name in ("torch", "transformers", "gguf", "numpy")},
        "text": TEXT,
    }
    np.savez_compressed(
        arguments.output,
        meta=np.array(json.dumps(meta)),
        ids=np.array(IDS, np.int32),
        layers=np.array(KEPT, np.int32),
        residual=single["residual"],
        attentions=single["attentions"],
        candidates=candidates,
        logits=np.take_along_axis(single["logits"], candidates, axis=1),
        residual_error=[distance(a, b) for a, b in zip(single["residual"], double["residual"], strict=True)],
        attentions_error=[
            float(np.abs(a - b).max()) for a, b in zip(single["attentions"], double["attentions"], strict=True)
        ],
        logits_error=distance(single["logits"], double["logits"]),
    )
    print(json.dumps(meta), f"{arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
