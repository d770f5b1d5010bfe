"""The table of request parameters, as the documentation shows it: those supported, then those refused.

In: the declarations of ``params`` and ``unsupported``. Out: rows of text.
"""

from dataclasses import fields
from typing import NamedTuple

from cutaway.sampling.params import SamplingParams, declarations
from cutaway.sampling.unsupported import UNSUPPORTED


class ParameterRow(NamedTuple):
    """One parameter of vLLM's ``SamplingParams`` of version ``unsupported.VLLM_VERSION``."""

    name: str
    supported: bool
    default: str
    limits: str
    meaning: str  # what to do instead, where it is not supported


def parameter_rows() -> list[ParameterRow]:
    """All parameters, in the order of their declaration."""
    declared = declarations()
    rows = []
    for each in fields(SamplingParams):
        _, check, meaning = declared[each.name]
        rows.append(ParameterRow(each.name, True, repr(each.default), check.limits, meaning))
    for name, accepted, instead in UNSUPPORTED:
        values = " or ".join(repr(value) for value in accepted)
        rows.append(ParameterRow(name, False, repr(accepted[0]), values, instead))
    return rows
