"""What a served engine must do, and its end of the pipe, for the engines' own processes.

They run in environments without Cutaway. So its file is loaded by its path: it needs nothing but the standard library.
"""

import importlib.util
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "src" / "cutaway" / "audit" / "llama_cpp_process.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("llama_cpp_process", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MODULE = _load()
CannotRunError = _MODULE.CannotRunError
LlamaCpp = _MODULE.LlamaCpp
StepEngine = _MODULE.StepEngine
serve = _MODULE.serve
