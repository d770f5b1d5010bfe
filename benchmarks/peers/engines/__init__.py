"""The engines by name, each in a file of its own, which is imported only by the process that runs it.

A name's part before the hyphen is the engine's; what follows is a way to drive it.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

OURS = "cutaway"


class Entry(NamedTuple):
    """Where an engine is."""

    title: str
    module: str
    factory: str


ENGINES = {
    OURS: Entry("Cutaway", "ours", "Cutaway"),
    "llama.cpp": Entry("llama.cpp, C API", "llama_cpp_c_api", "plain"),
    "llama.cpp-flash": Entry("llama.cpp, C API, flash attention", "llama_cpp_c_api", "flash"),
    "llama.cpp-generate": Entry("llama.cpp, Llama.generate", "llama_cpp_generate", "Generate"),
    "openvino": Entry("OpenVINO GenAI", "openvino", "OpenVino"),
    "transformers": Entry("transformers, torch bf16", "torch_transformers", "Transformers"),
}


def family(name: str) -> str:
    """The engine, whichever way it is driven."""
    return name.partition("-")[0]


def load(name: str) -> Callable[[Path, int, int], Any]:
    """What makes the engine from a model, a number of threads, and the positions that it must hold in all."""
    entry = ENGINES[name]
    factory: Callable[[Path, int, int], Any] = getattr(
        importlib.import_module(f"peers.engines.{entry.module}"), entry.factory
    )
    return factory
