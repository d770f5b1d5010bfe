"""The package from outside: what ``import cutaway`` offers, and what it does not load."""

import subprocess
import sys
from importlib.resources import files

import pytest

import cutaway


def modules_after(program: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("program", ["import cutaway", "import cutaway.cli.main", "from cutaway import SamplingParams"])
def test_the_compiler_is_loaded_when_it_is_needed(program: str) -> None:
    loaded = modules_after(program)
    assert "cutaway" in loaded
    assert not loaded & {"numba", "llvmlite", "jinja2", "regex", "fastapi", "uvicorn", "llguidance"}


def test_the_engine_is_loaded_without_the_compiler() -> None:
    assert not modules_after("from cutaway import LLM") & {"numba", "llvmlite", "llguidance"}


def test_importing_the_compiler_loads_it() -> None:
    """So that the tests before can fail."""
    assert modules_after("import cutaway.ops.compiler") >= {"numba", "llvmlite"}


def test_every_name_is_there() -> None:
    assert set(cutaway.__all__) == {
        "LLM",
        "AsyncEngine",
        "CutawayError",
        "Record",
        "RequestOutput",
        "SamplingParams",
        "StructuredOutputsParams",
        "TapRequest",
        "__version__",
    }
    from cutaway.audit.record.record import Record
    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.errors import CutawayError
    from cutaway.sampling.params import SamplingParams
    from cutaway.sampling.structured_outputs import StructuredOutputsParams

    assert cutaway.LLM is LLM
    assert cutaway.Record is Record
    assert cutaway.RequestOutput is RequestOutput
    assert cutaway.CutawayError is CutawayError
    assert cutaway.SamplingParams is SamplingParams
    assert cutaway.StructuredOutputsParams is StructuredOutputsParams
    namespace: dict[str, object] = {}
    exec("from cutaway import *", namespace)
    assert set(cutaway.__all__) <= set(namespace)


@pytest.mark.parametrize("name", ["Llm", "llm", "generate", "__path_", "engine_"])
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'cutaway' has no attribute '{name}'"):
        getattr(cutaway, name)
    assert not hasattr(cutaway, name)


def test_types_are_shipped() -> None:
    assert files(cutaway).joinpath("py.typed").is_file()


def test_a_module_that_runs() -> None:
    command = [sys.executable, "-m", "cutaway", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"cutaway {cutaway.__version__}\n"
