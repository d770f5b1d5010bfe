"""An explanation as one HTML file that needs nothing else: data, style and script are inside.

In: an ``Explanation``. Out: the text of the file, or the file. Its policy lets nothing be loaded and runs its own
script alone, known by its digest; what tokens say is data, and never markup. Attention is packed, so that an answer of
200 tokens stays below 5 MB.
"""

import base64
import hashlib
import json
import math
import os
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.explain.explanation import ExplainedToken, Explanation
from cutaway.audit.walk.choice import MODEL, Candidate
from cutaway.engine.step_outcome import SeenStep
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.hub.whole_file import write_whole

DIGITS: Final = 4  # of a number in the file
STATIC: Final = "static"


def write_report(path: str | os.PathLike[str], found: Explanation) -> int:
    """Write the file, whole or not at all; its bytes. Raises CutawayError where it can't be written."""
    data = report_html(found).encode("utf-8")
    try:
        write_whole(Path(path), data, sync=True)
    except OSError as error:
        raise CutawayError(
            f"the report {path} can't be written ({error.strerror or error}); nothing of it is left. Mend this, or "
            "name another file."
        ) from error
    return len(data)


def report_html(found: Explanation) -> str:
    """The text of the file. Raises InvalidRequestError for an answer without tokens."""
    if not found.tokens:
        raise InvalidRequestError("the answer has no tokens; there is nothing to show. Ask for 1 at least.", "tokens")
    style, script = _static("report.css"), _static("report.js")
    data = json.dumps(report_data(found), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_static("report.html")).substitute(
        # In a script element only its own end tag means something.
        data=data.replace("<", "\\u003c"),
        style=style,
        script=script,
        policy=policy,
    )


def _static(name: str) -> str:
    return (files(__package__) / STATIC / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As a content security policy has it."""
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def report_data(found: Explanation) -> dict[str, Any]:
    """What the script draws."""
    sequence = found.sequence
    return {
        "model": found.model,
        "facts": _facts(found),
        "notes": _notes(found),
        "layers": found.num_layers,
        "heads": found.num_heads,
        "vocabulary": found.vocab_size,
        "prompt": len(found.prompt),
        "sequence": [each.id for each in sequence],
        "special": [each.position for each in found.prompt if each.special],
        "pieces": found.pieces,
        "tokens": [_token(each) for each in found.tokens],
        "heads_packed": _packed(found),
        "block_length": found.block_length,
        "steps": [_step(each, found.request_id) for each in found.steps],
        "decisions": [
            {**each._asdict(), "own": each.name.partition("[")[0] == found.request_id} for each in found.decisions
        ],
        "ledger": None if found.ledger is None else found.ledger.as_dict(),
    }


def _facts(found: Explanation) -> list[str]:
    statistics = found.statistics
    facts = [
        f"{len(found.prompt)} tokens read, {len(found.tokens)} written",
        *(
            f"{name.replace('_', ' ')} {value}"
            for name, value in found.params.items()
            if isinstance(value, int | float)
        ),
    ]
    if statistics.decode_rate > 0:
        facts.append(f"{statistics.decode_rate:.0f} tokens/s")
    if statistics.cached_tokens:
        facts.append(f"{statistics.cached_tokens} of the prompt from the cache")
    ends = {"stop": "it ended by itself", "length": "it was cut at its limit"}
    if found.finish_reason is not None:
        facts.append(ends.get(found.finish_reason, found.finish_reason))
    return facts


def _notes(found: Explanation) -> list[str]:
    return [
        f"Numerics version {found.numerics_version}: the rows were computed again, open, and gave the same tokens to "
        "the bit.",
        "Attention is derived from the same queries and keys; the engine's own results follow from it, to the bit. Of "
        f"each head the {_kept(found)} strongest positions are kept; the average is over all of them, before any is "
        "left out.",
        "The lens is the model's last norm and head, applied after earlier layers: nothing in training asked for it.",
        "This file loads nothing.",
    ]


def _kept(found: Explanation) -> int:
    return max(int(each.looked.positions.shape[-1]) for each in found.tokens)


def rounded(value: float) -> float:
    """To so many digits as a report has."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{DIGITS}g}")


def _token(token: ExplainedToken) -> dict[str, Any]:
    choice = token.choice
    names = [MODEL, *(step.name for step in choice.steps)]
    return {
        "position": token.position,
        "id": token.id,
        "greedy": choice.greedy,
        "runner_up": None if choice.runner_up is None else choice.runner_up.id,
        "steps": [
            {"name": each.name, "touched": each.touched, "kept": each.kept, "mass": rounded(each.mass)}
            for each in choice.steps
        ],
        "candidates": [_candidate(each, names) for each in _with_winner(token)],
        "lens": [
            [
                each.rank,
                rounded(each.chosen),
                [number for guess in each.guesses for number in (guess.id, rounded(guess.probability))],
            ]
            for each in token.lens
        ],
        "looks": [[place, rounded(p)] for place, p in token.looked.average],
    }


def _with_winner(token: ExplainedToken) -> list[Candidate]:
    """Those that are shown; the winner is always among them."""
    candidates = list(token.choice.candidates)
    return candidates if any(each.id == token.id for each in candidates) else [*candidates, token.choice.winner]


def _candidate(each: Candidate, names: list[str]) -> dict[str, Any]:
    return {
        "id": each.id,
        "rank": each.rank,
        "p": [rounded(each.probabilities[name]) for name in names],
        "noise": None if each.noise is None else rounded(each.noise),
        "sum": None if each.total is None else rounded(each.total),
    }


def _packed(found: Explanation) -> dict[str, Any]:
    """All heads of all tokens: positions as integers of 2 or 4 bytes, probabilities as 255ths."""
    kept, wide = _kept(found), len(found.sequence) >= np.iinfo(np.uint16).max
    kind: Any = np.uint32 if wide else np.uint16
    shape = (len(found.tokens), found.num_layers, found.num_heads, kept)
    positions = np.full(shape, np.iinfo(kind).max, kind)
    probabilities = np.zeros(shape, np.uint8)
    for place, token in enumerate(found.tokens):
        here = token.looked.positions
        count = here.shape[-1]
        positions[place, ..., :count] = np.where(here < 0, np.iinfo(kind).max, here).astype(kind)
        probabilities[place, ..., :count] = np.rint(255 * token.looked.probabilities)
    return {
        "kept": kept,
        "wide": wide,
        "positions": _base64(positions.astype(np.dtype(kind).newbyteorder("<"))),
        "probabilities": _base64(probabilities),
    }


def _base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _step(seen: SeenStep, request_id: str) -> dict[str, Any]:
    own = [piece for piece in seen.pieces if piece.request_id == request_id]
    answer = sum(piece.num_tokens for piece in own if piece.num_tokens == 1 and piece.sampled)
    mine = sum(piece.num_tokens for piece in own)
    return {
        "number": seen.number,
        "started": seen.started,
        "seconds": seen.seconds,
        "own_prompt": mine - answer,
        "own_answer": answer,
        "others": sum(piece.num_tokens for piece in seen.pieces) - mine,
        "pads": seen.pads,
        "is_open": seen.is_open,
        "waiting": seen.waiting,
        "own_blocks": sum(piece.blocks for piece in own),
        "blocks_held": seen.blocks_held,
        "blocks_cached": seen.blocks_cached,
        "blocks_total": seen.blocks_total,
    }
