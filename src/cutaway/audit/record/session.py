"""The header of a record: which engine computes, which model it has, and how it is set up.

In: a loaded ``LLM``. Out: the content of a line.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from cutaway import __version__
from cutaway.audit.record.digests import ModelDigests, text_digest
from cutaway.audit.record.lines import FORMAT
from cutaway.audit.record.request_lines import now
from cutaway.engine.llm import LLM
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.ops.simd.lowering import LOWERING

GRAMMARS: Final = "llguidance"
"""The package that makes the masks of structured outputs, which the numerical contract has no part in."""


def header(llm: LLM, digests: ModelDigests, level: str, receipts: int) -> dict[str, Any]:
    """receipts: that the file has so far."""
    runner, settings = llm.runner, llm.settings
    return {
        "kind": "header",
        "format": FORMAT,
        "time": now(),
        "engine": __version__,
        "numerics": NUMERICS_VERSION,
        "level": level,
        "model": llm.model.name,
        "tensors": digests.tensors,
        "metadata": digests.metadata,
        "tokenizer": digests.tokenizer,
        "template": text_digest(llm.tokenizer.template),
        "grammars": package_version(GRAMMARS),
        "context": runner.context,
        "kv_dtype": runner.kv_dtype,
        "page_length": settings.page_length,
        "lowering": LOWERING,
        "threads": runner.team.size,
        "batching": settings.batching,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "receipts": receipts,
    }


def package_version(package: str) -> str | None:
    """Of what is installed; None where it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
