"""transformers, in a process of its own: what another implementation has between its layers for the same ids.

In: on the command line a model, a GGUF file or a folder of Hugging Face's, and where to write; on standard input the
ids, as a JSON list. Without a place to write it only looks for the libraries. Out: an npz file: ``residual``
[L + 1, T, D] float32, embedded and after each layer but the last, then after the last norm; ``logits`` [T, V] float32;
``versions``, text; ``config``, JSON text: what it made of the file's metadata. On standard output one line of JSON: {},
{"cannot": the reason} or {"missing": a package}.

This file runs in any interpreter that has torch and transformers, for GGUF files gguf too: it imports nothing of
Cutaway. Nothing is fetched, and no code that comes with a model is run.
"""

import json
import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any


def compute(model: Path, ids: list[int]) -> dict[str, Any]:
    """The arrays."""
    import numpy as np
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import AutoModelForCausalLM  # type: ignore[import-not-found,unused-ignore]

    where = {} if model.is_dir() else {"gguf_file": model.name}
    loaded = AutoModelForCausalLM.from_pretrained(
        model if model.is_dir() else model.parent,
        **where,
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
    ).eval()
    threads = torch.get_num_threads()
    with torch.inference_mode():
        # Where several threads make the first call of MKL's tanh, one in ten processes had a part of its values with an
        # error of 2e-5, and no further call did.
        torch.set_num_threads(1)
        loaded(torch.tensor([ids[:1]]), use_cache=False)
        torch.set_num_threads(threads)
        found = loaded(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    return {
        "residual": np.stack([state[0].float().numpy() for state in found.hidden_states]),
        "logits": found.logits[0].float().numpy(),
        "config": loaded.config.to_json_string(use_diff=False),
        "versions": f"transformers {version('transformers')}, torch {version('torch')}",
    }


def check(model: Path) -> dict[str, str]:
    """Whether all that this model takes can be imported."""
    for package in ("torch", "transformers", *(() if model.is_dir() else ("gguf",))):
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            return {"missing": error.name or package}
    return {}


def main() -> None:
    """One request."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not mix with the answer
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    try:
        model = Path(sys.argv[1])
        said = check(model)
        if not said and len(sys.argv) > 2:
            import numpy as np

            np.savez(sys.argv[2], **compute(model, json.load(sys.stdin)))
    except Exception as error:  # whatever a foreign library raises is an answer, too
        said = {"cannot": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.pop(0)  # the modules beside this file are Cutaway's: no library shall find them
    main()
