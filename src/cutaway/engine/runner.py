"""The runner: a model in memory with its team, workspace and KV pool, ready to compute steps.

In: a model file and the engine's limits; then batches. Out: logits, in each of the ways to run the one forward:
closed, timed, tapped, open.
"""

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from numbers import Integral
from typing import Any, Final, NamedTuple

import numpy as np

from cutaway.engine.steps import Look, Tap, TapName
from cutaway.errors import CutawayError, InvalidRequestError, shown
from cutaway.formats.source import ModelSource
from cutaway.memory.kv_cache import KVPool, allocate_kv_pool, copy_page
from cutaway.memory.kv_setting import PAGE_LENGTH
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, check_batch, make_batch
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.dry_run import Shown, shown_by_step
from cutaway.model.forward import forward_compiled, forward_tapped, forward_timed, rebind
from cutaway.model.hidden import hidden_states
from cutaway.model.loader import LoadedModel, load_model
from cutaway.model.shapes import LAYER_TAPS, STEP_TAPS, TAPS, Limits, dimensions, evaluate
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.clock import new_clocks
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.ops.cpu.processors import default_threads
from cutaway.ops.cpu.tap import new_notes
from cutaway.ops.cpu.team import Team
from cutaway.ops.cpu.team_size import SizedTeam
from cutaway.ops.cpu.threads import ThreadTeam, float_environment

SHORTEST_CONTEXT: Final = 2
_SHOW: Final = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # what compiled code calls with a tap's place
DEFAULT_CONTEXT: Final = 8192  # positions, where the model allows more and the user named none
DEFAULT_STEP: Final = 256  # tokens of a step at most: a long prompt is computed in chunks of so many


def choose_context(asked: int | None, config: ModelConfig) -> int:
    """Positions of a sequence at most: as asked, else the model's own up to ``DEFAULT_CONTEXT``."""
    trained = config.context_length
    if asked is None:
        return min(trained, DEFAULT_CONTEXT)
    if isinstance(asked, bool) or not isinstance(asked, Integral) or not SHORTEST_CONTEXT <= asked <= trained:
        raise InvalidRequestError(
            f"the context (max_model_len, --context) is {shown(asked)}; {config.name} was trained on {trained} "
            f"positions, so it must be an integer from {SHORTEST_CONTEXT} (one for the prompt, one for the answer) to "
            f"{trained}. Leave it out for the default.",
            "max_model_len",
        )
    return int(asked)


class _ShownStep(NamedTuple):
    """What tapped steps of one size show."""

    size: tuple[int, int]  # T and O
    shown: list[Shown]  # in the forward's order
    places: dict[TapName, int]  # in it


def _showing(
    shown: Sequence[Shown], looking: Mapping[int, Sequence[Look]], reached: list[int], failed: list[BaseException]
) -> Generator[None, int, None]:
    """Is sent the places of a tapped step, which it adds to ``reached``; shows each to who is ``looking``, until one
    has ``failed``.

    Nothing may be raised into the compiled code that sends them: it would be lost, an interruption (Ctrl-C) among it.
    One that came while no bytecode ran is raised with the first that does, so that is here within the ``try``; the
    beginning of a function would be outside of any.
    """
    while True:
        try:
            place = yield
            reached.append(place)
            try:
                for look in () if failed else looking[place]:
                    look.see(*shown[place])
            except BaseException as error:
                failed.append(error)
        except GeneratorExit:
            return
        except BaseException as error:
            failed.append(error)


class ModelRunner:
    """A loaded model and everything that a step needs. Use as a context manager, or ``close`` it."""

    def __init__(
        self,
        source: ModelSource,
        *,
        threads: int | None = None,
        context: int | None = None,
        max_tokens: int = DEFAULT_STEP,
        max_outputs: int = 1,
        kv_dtype: str = "f16",
        page_length: int = PAGE_LENGTH,
        num_pages: int | None = None,
    ) -> None:
        """Load the file's model.

        threads: members of the team (default: the processors that this process may use). context: positions of a
        sequence at most (default: the model's, up to 8,192). max_tokens, max_outputs: tokens and rows of logits of
        a step. kv_dtype: "f16", "f32" or "int8". page_length: positions of a page of the KV pool, a multiple of 16.
        num_pages: how many it has (default: one context).
        """
        self.context = choose_context(context, read_config(source))
        self.team = ThreadTeam(default_threads() if threads is None else threads)
        self._sized_team = SizedTeam(self.team)
        self.loaded: LoadedModel = load_model(source, self.team.size)
        self.config: ModelConfig = self.loaded.config
        self.vocab_size = self.config.vocab_size
        self.max_step_tokens, self.max_step_outputs = max_tokens, max_outputs
        pages = -(-self.context // page_length) if num_pages is None else num_pages
        self.kv_dtype = kv_dtype
        self.kv: KVPool = allocate_kv_pool(self.config, pages, page_length, kv_dtype)
        self.limits = Limits(max_tokens, max_outputs, self.team.size, self.context, pages * page_length // SUBTILE)
        self.dimensions = dimensions(self.config, self.limits)
        self.workspace = allocate_workspace(self.dimensions)
        self._shown = _ShownStep((0, 0), [], {})  # of the last tapped step
        self.num_steps = 0  # so far, by whomever: each of them may have written to any page

    def _check(self, batch: Batch) -> None:
        self.team.check_not_within()  # in whose memory it would write
        self.num_steps += 1
        check_batch(batch, self.limits, self.config.vocab_size, self.kv.num_pages, self.kv.page_length)

    def logits_of(self, batch: Batch) -> Floats:
        """The logits [O, V] of the batch that was computed last; a view that the next step overwrites."""
        return self.workspace.logits[: len(batch.output_rows), : self.config.vocab_size]

    def step(self, batch: Batch) -> Floats:
        """Closed: the logits [O, V] of the batch's output rows, a view that the next step overwrites."""
        self._check(batch)
        arguments = self.loaded.record, batch, self.kv.record, self.workspace
        self._sized_team.run(len(batch.tokens), forward_compiled, *arguments)
        return self.logits_of(batch)

    def residuals(self, batch: Batch) -> Floats:
        """The last residual rows [O, D], before the last norm, of the output rows of the batch that was computed last;
        a view that the next step overwrites.
        """
        return self.workspace.last[: len(batch.output_rows)]

    def hidden_states(self, batch: Batch) -> Floats:
        """The last hidden states [T, D], after the last norm, of all rows of the batch that was computed last; a view
        that the next step overwrites.
        """
        arguments = self.loaded.record, batch, self.workspace
        compiled: Any = hidden_states
        compiled.prepare(self.team.members()[0], *arguments)  # a team runs what is compiled
        self.team.run(hidden_states, *arguments)
        return self.workspace.h[: len(batch.tokens)]

    def copy_page(self, source: int, target: int) -> None:
        """Copy the keys and values of a page to another one."""
        copy_page(self.kv, source, target)

    def step_open(self, batch: Batch, tap: Tap) -> Floats:
        """Open: the same bits, computed operation by operation; ``tap(name, layer, array)`` after each.

        Every array is checked against the shape table. The tap sees the engine's own buffers: copy what you keep.
        """
        self._check(batch)
        check = self._shape_check(batch)

        def checked(team: Team, name: str, layer: int, array: "np.ndarray[Any, Any]") -> None:
            check(name, layer, array)
            tap(name, layer, array)

        alone = ThreadTeam(1)
        with float_environment():
            rebind({"tap": checked})(alone.members()[0], self.loaded.record, batch, self.kv.record, self.workspace)
        return self.logits_of(batch)

    def _shape_check(self, batch: Batch) -> Callable[[str, int, Any], None]:
        """A tap that holds the arrays of a step like this one against the shape table."""
        sizes = {**self.dimensions, "T": len(batch.tokens), "O": len(batch.output_rows)}
        expected = {
            name: tuple(evaluate(entry, self.dimensions if name.endswith("_input") else sizes) for entry in shape)
            for name, shape in TAPS.items()
        }

        def check(name: str, layer: int, array: "np.ndarray[Any, Any]") -> None:
            dtype = np.dtype(np.int8 if name.endswith("_input") else np.float32)
            assert (array.shape, array.dtype) == (expected[name], dtype), (
                f"{name} in layer {layer} is {array.shape} {array.dtype}, the shape table says {expected[name]} {dtype}"
            )

        return check

    def _shown_by(self, batch: Batch) -> "_ShownStep":
        """What a step like this one shows. Checked against the shape table; kept for the next one of its size."""
        size = len(batch.tokens), len(batch.output_rows)
        found = self._shown  # at once: another thread may change it
        if found.size != size:
            shown = shown_by_step(self.loaded.record, batch, self.workspace)
            check = self._shape_check(batch)
            for each in shown:
                check(*each)
            places = {(each.name, each.layer): place for place, each in enumerate(shown)}
            self._shown = found = _ShownStep(size, shown, places)
        return found

    def step_tapped(self, batch: Batch, looks: Sequence[Look]) -> Floats:
        """Tapped: as closed, but where one of the ``looks`` wants an operation, the threads stop behind it until it was
        shown. What it raises then is raised after the step.
        """
        self._check(batch)
        _, shown, places = self._shown_by(batch)
        looking: dict[int, list[Look]] = {}  # by place
        for look in looks:
            for name in look.wanted:
                if name in places:
                    looking.setdefault(places[name], []).append(look)
        failed: list[BaseException] = []
        reached: list[int] = []
        showing = _showing(shown, looking, reached, failed)
        next(showing)
        function = _SHOW(showing.send)
        # Not by ctypes.cast, which would have the function, and all that it knows, refer to itself.
        address = ctypes.c_void_p.from_buffer(function).value or 0
        notes = new_notes(self.team.size, address, len(shown), looking)
        arguments = self.loaded.record, batch, self.kv.record, self.workspace
        self.team.run(forward_tapped, *arguments, notes=notes)
        if failed:
            raise failed.pop()  # which knows the list
        if len(reached) != len(looking):
            raise CutawayError(
                f"of {len(looking):,} operations of a step, {len(reached):,} could be shown: Python had no memory, or "
                "was interrupted, when it was called. Compute the step again."
            )
        return self.logits_of(batch)

    def prepare_tapped(self) -> None:
        """Compile the tapped forward now, where it isn't in the cache, and not in the step that first uses it."""
        compiled: Any = forward_tapped
        batch = make_batch([Piece(0, [0], [0])])
        compiled.prepare(self.team.members()[0], self.loaded.record, batch, self.kv.record, self.workspace)

    def step_timed(self, batch: Batch) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Timed: as closed, but returns the members' clocks, int64 [n, 1 + stamps]: how many stamps, then the stamps.

        The first stamp is from before the step was handed to the threads, the second from when all had it (see
        ``ops.cpu.clock``); then one for each tap.
        """
        self._check(batch)
        clocks = new_clocks(self.team.size, len(STEP_TAPS) + self.config.num_layers * len(LAYER_TAPS))
        self.team.run(forward_timed, self.loaded.record, batch, self.kv.record, self.workspace, notes=clocks)
        return clocks

    def prepare_timed(self) -> None:
        """Compile the timed forward now, where it isn't in the cache, and not in the step that first uses it."""
        compiled: Any = forward_timed
        batch = make_batch([Piece(0, [0], [0])])
        compiled.prepare(self.team.members()[0], self.loaded.record, batch, self.kv.record, self.workspace)

    def touch(self) -> None:
        """Have the system put memory behind the workspace and the KV pool now, not in the step that first uses it.

        What can't be had ends the process here and not amid the requests. Only before the first step: it writes zeros.
        """
        for array in (
            *self.workspace,
            *self.workspace.activation,
            *self.workspace.scratch,
            *self.kv.arrays,
        ):
            if isinstance(array, np.ndarray):
                array.fill(0)

    def close(self) -> None:
        """End the team's threads."""
        self.team.close()

    def __enter__(self) -> "ModelRunner":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
