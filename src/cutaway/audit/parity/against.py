"""Parity with another implementation: transformers, on the same ids, layer by layer.

In: a model's path, ids, the residual streams of a parity run. Out: ``Foreign``: how far the definition and the engine
are from what the other has; or a CutawayError that says why there is nothing to compare with.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.parity import transformers_process
from cutaway.audit.parity.budgets import SIGMAS, rms, root_mean_square
from cutaway.audit.parity.foreign_config import read_otherwise
from cutaway.audit.parity.streams import Streams, relative_rows
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.model.config import ModelConfig

AGAINST: Final = "transformers"
SECONDS: Final = 1800.0
"""For loading and one pass of a short text; what takes longer hangs."""
MOST_SAID: Final = 300  # characters of a foreign error

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ForeignRow:
    """One place of the residual stream. Distances are relative, root mean square over the tokens."""

    name: str  # of the tap
    layer: int
    definition: float  # float64's from transformers'
    limit: float  # of it: roundings to float32, which transformers makes
    engine: float  # the engine's from transformers'

    @property
    def within(self) -> bool:
        """Whether definition and transformers mean the same."""
        return self.definition <= self.limit


@dataclass(frozen=True)
class Foreign:
    """Both beside transformers in float32."""

    versions: str
    rows: tuple[ForeignRow, ...]  # embedded, after each layer but the last, after the last norm, the logits
    otherwise: tuple[str, ...] = ()  # where it computes something else: what it reads otherwise from the file

    @property
    def first_over(self) -> ForeignRow | None:
        """The first place where the definition isn't what transformers computes."""
        return next((each for each in self.rows if not each.within), None)


def stand_beside(path: Path, ids: Sequence[int], python: Path | None, streams: Streams, config: ModelConfig) -> Foreign:
    """The streams of a parity run beside transformers'. Raises CutawayError where that has nothing to compare with."""
    found = ask_transformers(path, ids, python)
    foreign = compare(streams, found, config)
    if foreign.first_over is None:
        return foreign
    return replace(foreign, otherwise=read_otherwise(path, json.loads(str(found["config"])), config))


def check_interpreter(path: Path, python: Path | None = None) -> None:
    """Whether the interpreter has what the model at ``path`` takes there, before any work. Raises InvalidRequestError
    where it hasn't.
    """
    _run(_interpreter(python), path)


def ask_transformers(path: Path, ids: Sequence[int], python: Path | None = None) -> dict[str, Array]:
    """What ``transformers_process`` writes. python: the interpreter that has it; None: this one.

    Raises InvalidRequestError where it can't be run, with the reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.npz"
        _run(_interpreter(python), path, target, ids)
        with np.load(target, allow_pickle=False) as found:
            return {name: np.array(found[name]) for name in found.files}


def _interpreter(python: Path | None) -> Path:
    return Path(sys.executable) if python is None else python


def _run(interpreter: Path, path: Path, target: Path | None = None, ids: Sequence[int] = ()) -> None:
    """One process; without a target it only looks for the libraries."""
    script = Path(transformers_process.__file__).resolve()
    try:
        process = subprocess.run(
            [str(interpreter), str(script), str(path.resolve()), *([] if target is None else [str(target)])],
            input=json.dumps([int(each) for each in ids]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        raise InvalidRequestError(
            f"{str(interpreter)!r} can't be started ({error.strerror}). Check --python.", "python"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InvalidRequestError(
            f"transformers gave no answer in {SECONDS:.0f} s. Try a shorter text.", "text"
        ) from error
    said = _answer(process, interpreter)
    if "missing" in said:
        raise InvalidRequestError(
            f"{said['missing'][:MOST_SAID]} is not installed in {interpreter}. Install what is needed there: pip "
            "install torch transformers gguf; or name an interpreter that has them with --python.",
            "python",
        )
    if "cannot" in said:
        raise InvalidRequestError(
            f"transformers can't run this model: {said['cannot'][:MOST_SAID].rstrip('.')}. Name a folder of "
            "safetensors of the model, which it reads as it is; or leave out --against.",
            "against",
        )


def _answer(process: "subprocess.CompletedProcess[str]", interpreter: Path) -> dict[str, str]:
    try:
        said: dict[str, str] = json.loads(process.stdout)
    except ValueError:
        last = (process.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise InvalidRequestError(
            f"{interpreter} ended with code {process.returncode} and no answer: {last[:MOST_SAID]}. Check that torch "
            "and transformers work there.",
            "python",
        ) from None
    return said


def compare(streams: Streams, found: dict[str, Array], config: ModelConfig) -> Foreign:
    """The residual streams and the logits of the parity run beside transformers'. Raises CutawayError where the shapes
    differ.
    """
    residual = [*found["residual"], found["logits"]]
    definition, engine = (
        [*each[:-1], each[-1][:, : config.vocab_size]] for each in (streams.definition, streams.engine)
    )
    theirs, ours = ([each.shape for each in places] for places in (residual, definition))
    if theirs != ours:
        raise CutawayError(
            f"transformers has {len(theirs)} places of the stream, the last of {theirs[-1]} numbers, Cutaway "
            f"{len(ours)}, the last of {ours[-1]}: not the same model."
        )
    rows = []
    for number, ((name, layer), found_there) in enumerate(zip(streams.places, residual, strict=True)):
        exact = found_there.astype(np.float64)
        rows.append(
            ForeignRow(
                name=name,
                layer=layer,
                definition=root_mean_square(relative_rows(definition[number], exact)),
                limit=float32_limit(config, number),
                engine=root_mean_square(relative_rows(engine[number].astype(np.float64), exact)),
            )
        )
    return Foreign(str(found["versions"]), tuple(rows))


def float32_limit(config: ModelConfig, layers: int) -> float:
    """How far a run in float32 may be from float64 after so many layers: in each, four products whose sums are rounded
    once a term, of which partial sums of random signs count half, and a dozen roundings besides.
    """
    columns = 2 * config.width + config.num_heads * config.head_dim + config.ffn_width
    return SIGMAS * rms(1 + layers * (columns / 2 + 12)) * math.sqrt(2)  # as much again for what the layers amplify
