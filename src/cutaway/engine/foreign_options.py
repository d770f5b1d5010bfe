"""The options of vLLM's ``LLM`` and of its methods that do nothing here, refused by name with what to do instead.

In: keyword arguments that a call of ours does not have. Out: nothing, where each asks for what happens anyway, so that
a script which spells out a default runs; else an error. Names and defaults: vLLM 0.33.0, as for ``SamplingParams``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from cutaway.errors import InvalidRequestError

Foreign = tuple[tuple[Any, ...], str]  # values that ask for nothing; what to do instead of the others

LOAD: Final[Mapping[str, Foreign]] = MappingProxyType(
    {
        "tokenizer": ((None,), "The tokenizer is the model file's own. Leave it out."),
        "tokenizer_mode": (("auto",), "There is one tokenizer for each model. Leave it out."),
        "skip_tokenizer_init": ((False,), "Give prompts as ids, with detokenize=False, for ids alone."),
        "trust_remote_code": ((False,), "No code of a model is ever run. Leave it out."),
        "tensor_parallel_size": ((1,), "One process computes, with as many threads as threads=… says."),
        "pipeline_parallel_size": ((1,), "One process computes, with as many threads as threads=… says."),
        "dtype": (("auto",), "Weights stay in the file's format; kv_dtype chooses that of keys and values."),
        "quantization": ((None,), "Weights stay in the file's format. Choose another file."),
        "revision": (
            (None,),
            "A catalogued model is pinned; of a repository the branch main is taken. Give a file's path for another.",
        ),
        "seed": ((None, 0), "Give SamplingParams(seed=…): a request's noise is its own."),
        "gpu_memory_utilization": (
            (0.92, 0.9),
            "There is no GPU here. max_model_len bounds the memory of the KV cache.",
        ),
        "swap_space": ((0, 4), "Nothing is swapped. Leave it out."),
        "cpu_offload_gb": ((0,), "All is on the CPU. Leave it out."),
        "enforce_eager": ((False, True), "There is no graph to capture. Leave it out."),
        "disable_log_stats": ((True, False), "Statistics are in each RequestOutput. Leave it out."),
        "kv_cache_dtype": (("auto",), "Use kv_dtype: 'f16', 'f32' or 'int8'."),
        "runner": (("auto", "generate", "pooling"), "Every model generates and embeds. Leave it out."),
        "hf_token": ((None,), "Set HF_TOKEN in the environment for it."),
    }
)

REQUEST: Final[Mapping[str, Foreign]] = MappingProxyType(
    {
        "lora_request": ((None,), "There are no adapters. Leave it out."),
        "tokenization_kwargs": ((None,), "Give ids for another tokenization. Leave it out."),
        "mm_processor_kwargs": ((None,), "There are texts only. Leave it out."),
    }
)

CHAT: Final[Mapping[str, Foreign]] = MappingProxyType(
    {**REQUEST, "chat_template_content_format": (("auto", "string"), "A message's content is a text. Leave it out.")}
)

EMBED: Final[Mapping[str, Foreign]] = MappingProxyType(
    {**REQUEST, "pooling_params": ((None,), "Use pooling: 'last' or 'mean'.")}
)


def refuse_foreign(call: str, given: Mapping[str, Any], table: Mapping[str, Foreign], own: str) -> None:
    """Raise InvalidRequestError for an argument that would change something there, or that nobody knows.

    call: the name of what was called; own: the arguments that it has, for the error.
    """
    for name, value in given.items():
        if name not in table:
            raise InvalidRequestError(f"{call} has no option {name!r}; it has {own}. Leave it out.", name)
        accepted, instead = table[name]
        if not any(type(value) is type(each) and value == each for each in accepted):
            values = " or ".join(repr(each) for each in accepted)
            raise InvalidRequestError(f"{name} is {value!r:.100}; {call} takes {values} alone. {instead}", name)
