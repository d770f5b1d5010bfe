"""transformers with torch, in bfloat16: the weights of the GGUF file are expanded when it is read."""

import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from peers.contract import StepEngine


class Transformers(StepEngine):
    """A greedy loop over the model's own forward and cache."""

    def __init__(self, model: Path, threads: int, positions: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(
            str(model.parent), gguf_file=model.name, dtype=torch.bfloat16
        ).eval()

    def info(self) -> dict[str, str]:
        return {"python": platform.python_version()} | {n: version(n) for n in ("torch", "transformers")}

    def forget(self) -> None:
        """Each request has a cache of its own."""

    def generate(self, prompts: list[list[int]], new_tokens: int) -> Iterator[int]:
        cache, ids = None, self._torch.tensor(prompts)
        for _ in range(new_tokens):
            with self._torch.inference_mode():
                output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache, ids = output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)
            yield len(prompts)
