"""An explanation as plain data, for programs.

In: an ``Explanation``. Out: dictionaries, lists, numbers and strings; docs/explanations.md names the keys.
"""

from dataclasses import asdict
from typing import Any

from cutaway.audit.explain.explanation import ExplainedToken, Explanation
from cutaway.engine.step_outcome import SeenStep


def explanation_dict(found: Explanation) -> dict[str, Any]:
    """Everything."""
    return {
        "model": found.model,
        "numerics_version": found.numerics_version,
        "vocab_size": found.vocab_size,
        "num_layers": found.num_layers,
        "num_heads": found.num_heads,
        "params": {name: _plain(value) for name, value in found.params.items()},
        "request_id": found.request_id,
        "prompt": [asdict(each) for each in found.prompt],
        "tokens": [_token(each) for each in found.tokens],
        "pieces": {str(each): piece for each, piece in found.pieces.items()},
        "text": found.text,
        "finish_reason": found.finish_reason,
        "statistics": asdict(found.statistics),
        "steps": [step_dict(each) for each in found.steps],
        "decisions": [each._asdict() for each in found.decisions],
        "block_length": found.block_length,
        "ledger": None if found.ledger is None else found.ledger.as_dict(),
    }


def _token(token: ExplainedToken) -> dict[str, Any]:
    """One token: how it was chosen, what earlier layers would have said, where it looked."""
    looked = token.looked
    return {
        "position": token.position,
        "id": token.id,
        "piece": token.piece,
        "text": token.text,
        "step": token.step,
        "choice": asdict(token.choice),
        "lens": [asdict(each) for each in token.lens],
        "attention": {
            "average": [[place, p] for place, p in looked.average],
            "heads": [
                [
                    [[place, p] for place, p in zip(places, probabilities, strict=True) if place >= 0]
                    for places, probabilities in zip(*layer, strict=True)
                ]
                for layer in zip(looked.positions.tolist(), looked.probabilities.tolist(), strict=True)
            ],
        },
    }


def step_dict(seen: SeenStep) -> dict[str, Any]:
    """Without the clocks, which are no one's to read but the ledger's."""
    data = seen._asdict()
    del data["clocks"]
    return {**data, "pieces": [{**piece._asdict(), "choices": list(piece.choices)} for piece in seen.pieces]}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, frozenset | set | tuple):
        return list(value)
    return value if isinstance(value, str | int | float | bool | list | dict) or value is None else str(value)
