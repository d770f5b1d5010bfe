"""llama.cpp by its C API: ``llama_decode`` and a greedy sampler chain, as ``cutaway bench --against`` drives it."""

from pathlib import Path
from typing import Any

from peers.contract import LlamaCpp


def plain(model: Path, threads: int, positions: int) -> Any:
    """It makes room for each request as it comes."""
    return LlamaCpp(model, threads)


def flash(model: Path, threads: int, positions: int) -> Any:
    """The same with llama.cpp's flash attention."""
    return LlamaCpp(model, threads, flash_attention=True)
