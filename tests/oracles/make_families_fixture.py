"""Write `tests/fixtures/families_reference.npz`: what transformers in float32 says about the small random models.

Comes in: a folder with the models of `tests/support/tiny_families.py`, always the same bytes, and their prompts. Goes
out, for each case:

    CASE.sha256      text             of the file
    CASE.logprobs    [T, V'] float32  of some ids, after each token of the ten prompts in order

and `meta`, JSON text, with the versions and, for each case, `oracle_error`: the largest difference to the same model
with weights and matrix products in float64.

    PYTHONPATH=tests .venv/bin/python -m support.tiny_families FOLDER
    peers/bin/python tests/oracles/make_families_fixture.py FOLDER
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from oracle_model import FIXTURES, load_oracle, logprobs_at_every_position, sha256_of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    cases = json.loads((folder / "cases.json").read_text())
    arrays: dict[str, Any] = {}
    errors = {}
    for name in cases["names"]:
        path = folder / f"{name}.gguf"
        arrays[f"{name}.sha256"] = np.array(sha256_of(path))
        model = load_oracle(path, cases["llama3"].get(name))
        single = np.concatenate([logprobs_at_every_position(model, ids) for ids in cases["prompts"].values()])
        model.double()
        double = np.concatenate([logprobs_at_every_position(model, ids) for ids in cases["prompts"].values()])
        errors[name] = float(np.abs(single - double).max())
        arrays[f"{name}.logprobs"] = single[:, cases["seen_ids"]].astype(np.float32)
        print(f"{name:16} {arrays[f'{name}.logprobs'].shape}  error {errors[name]:.1e}", flush=True)
    versions = {name: version(name) for name in ("torch", "transformers", "gguf", "numpy")}
    output = FIXTURES / "families_reference.npz"
    np.savez_compressed(output, meta=np.array(json.dumps({"versions": versions, "oracle_error": errors})), **arrays)
    print(output.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
