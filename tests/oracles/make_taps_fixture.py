"""Write `tests/fixtures/taps_reference.npz`: hidden states and attentions of the small random models, by transformers.

Comes in: a folder with the models of `tests/support/tiny_families.py`, always the same bytes. Goes out, for each case,
of the last ROWS positions of the prompt PROMPT, in float32:

    CASE.sha256      text               of the file
    CASE.hidden      [L + 1, ROWS, D]   `output_hidden_states`: the embedding, each layer's output; the last is normed
    CASE.attentions  [L, ROWS, H, T]    `output_attentions`, eager

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
import torch
from oracle_model import FIXTURES, load_oracle, sha256_of

PROMPT = "prompt 6"
ROWS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    cases = json.loads((folder / "cases.json").read_text())
    ids = torch.tensor([cases["prompts"][PROMPT]])
    arrays: dict[str, Any] = {}
    for name in cases["names"]:
        path = folder / f"{name}.gguf"
        model = load_oracle(path, cases["llama3"].get(name))
        with torch.inference_mode():
            found = model(ids, use_cache=False, output_hidden_states=True, output_attentions=True)
        arrays[f"{name}.sha256"] = np.array(sha256_of(path))
        arrays[f"{name}.hidden"] = np.stack([each[0, -ROWS:].numpy() for each in found.hidden_states])
        rows = [each[0, :, -ROWS:].transpose(0, 1).numpy() for each in found.attentions]
        arrays[f"{name}.attentions"] = np.stack(rows)
        print(f"{name:16} {arrays[f'{name}.hidden'].shape} {arrays[f'{name}.attentions'].shape}", flush=True)
    versions = {name: version(name) for name in ("torch", "transformers", "gguf", "numpy")}
    meta = np.array(json.dumps({"versions": versions, "prompt": PROMPT, "rows": ROWS}))
    output = FIXTURES / "taps_reference.npz"
    np.savez_compressed(output, meta=meta, **arrays)
    print(output.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
