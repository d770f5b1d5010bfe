"""Cutaway: an LLM inference engine with its casing open.

``LLM`` and the others are loaded when they are first used, so that the command line answers at once.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "AsyncEngine",
    "CutawayError",
    "Record",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
    "TapRequest",
    "__version__",
]

from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from cutaway.audit.record.record import Record
    from cutaway.audit.taps.request import TapRequest
    from cutaway.engine.async_engine import AsyncEngine
    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.sampling.params import SamplingParams
    from cutaway.sampling.structured_outputs import StructuredOutputsParams


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from cutaway.engine.llm import LLM

        return LLM
    if name == "AsyncEngine":
        from cutaway.engine.async_engine import AsyncEngine

        return AsyncEngine
    if name == "Record":
        from cutaway.audit.record.record import Record

        return Record
    if name == "RequestOutput":
        from cutaway.engine.outputs import RequestOutput

        return RequestOutput
    if name == "SamplingParams":
        from cutaway.sampling.params import SamplingParams

        return SamplingParams
    if name == "StructuredOutputsParams":
        from cutaway.sampling.structured_outputs import StructuredOutputsParams

        return StructuredOutputsParams
    if name == "TapRequest":
        from cutaway.audit.taps.request import TapRequest

        return TapRequest
    raise AttributeError(f"module 'cutaway' has no attribute {name!r}")
