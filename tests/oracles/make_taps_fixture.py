"""Write `tests/fixtures/taps_reference.npz`: hidden states, attentions and the logit lens, by transformers.

Comes in: a folder with the small random models of `tests/support/tiny_families.py`, always the same bytes. Goes out,
for each case, of the last ROWS positions of the prompt PROMPT, in float32:

    CASE.sha256      text               of the file
    CASE.hidden      [L + 1, ROWS, D]   `output_hidden_states`: the embedding, each layer's output; the last is normed
    CASE.attentions  [L, ROWS, H, T]    `output_attentions`, eager
    CASE.lens        [L + 1, ROWS, S]   log-probabilities of the ids SEEN, if the model ended after the embedding, or
                                        after a layer: its last norm and its head, applied to `hidden_states`
    CASE.error       [3] float64        the same with float64's weights and products: how far hidden states (relative
                                        to the greatest of their place), attentions and lens are away at most

and `meta`, JSON text, with the versions.

    PYTHONPATH=tests .venv/bin/python -m support.tiny_families FOLDER
    peers/bin/python tests/oracles/make_taps_fixture.py FOLDER
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from oracle_model import FIXTURES, load_oracle, log_softmax, sha256_of
from transformers import PreTrainedModel

PROMPT = "prompt 6"
ROWS = 3


Found = dict[str, npt.NDArray[np.float64]]


@torch.inference_mode()
def states_of(model: PreTrainedModel, ids: list[int], seen: list[int]) -> Found:
    found = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True, output_attentions=True)
    inner = model.get_decoder() if hasattr(model, "lm_head") and hasattr(model, "model") else model.transformer
    last_norm = inner.norm if hasattr(inner, "norm") else inner.ln_f
    cap = getattr(model.config, "final_logit_softcapping", None)
    lens = []
    for state in found.hidden_states[:-1]:  # the last one is normed already, and its lens is the logits
        logits = model.lm_head(last_norm(state))[0, -ROWS:]
        lens.append(log_softmax((cap * torch.tanh(logits / cap) if cap else logits).numpy()))
    lens.append(log_softmax(found.logits[0, -ROWS:].numpy()))
    return {
        "hidden": np.stack([each[0, -ROWS:].double().numpy() for each in found.hidden_states]),
        "attentions": np.stack([each[0, :, -ROWS:].transpose(0, 1).double().numpy() for each in found.attentions]),
        "lens": np.stack(lens)[..., seen],
    }


def distances(single: Found, double: Found) -> list[float]:
    apart = {name: np.abs(single[name] - double[name]) for name in single}
    of_place = np.abs(double["hidden"]).max(axis=(1, 2), keepdims=True)
    return [float((apart["hidden"] / of_place).max()), float(apart["attentions"].max()), float(apart["lens"].max())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    cases = json.loads((folder / "cases.json").read_text())
    ids, seen = cases["prompts"][PROMPT], cases["seen_ids"]
    arrays: dict[str, Any] = {}
    for name in cases["names"]:
        path = folder / f"{name}.gguf"
        model = load_oracle(path, cases["llama3"].get(name))
        single = states_of(model, ids, seen)
        error = distances(single, states_of(model.double(), ids, seen))
        arrays |= {f"{name}.{key}": array.astype(np.float32) for key, array in single.items()}
        arrays |= {f"{name}.sha256": np.array(sha256_of(path)), f"{name}.error": np.array(error)}
        print(f"{name:16}", *(f"{key} {array.shape}" for key, array in single.items()), error, flush=True)
    versions = {name: version(name) for name in ("torch", "transformers", "gguf", "numpy")}
    meta = np.array(json.dumps({"versions": versions, "prompt": PROMPT, "rows": ROWS, "seen": seen}))
    output = FIXTURES / "taps_reference.npz"
    np.savez_compressed(output, meta=meta, **arrays)
    print(output.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
