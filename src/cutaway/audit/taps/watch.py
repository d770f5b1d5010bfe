"""The watch of one request: it copies the rows that are wanted while its steps are run open.

In: a plan, a runner, and operation after operation of each step. Out: rows, tensor by tensor. Positions come in order;
those that are computed again, after a preemption or without a cache, have been seen and are not kept twice. Nor is the
prompt of several answers: its rows are the first one's, which always computes it before the others go on from there.
"""

import weakref
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.taps.attention_rows import attention_rows, prepare_attention_rows
from cutaway.audit.taps.cache_rows import cache_rows
from cutaway.audit.taps.plan import TapPlan
from cutaway.audit.taps.results import TapRoom, Taps
from cutaway.audit.taps.tensors import DERIVED, SUMS, TapTensor
from cutaway.engine.outputs import TappedRows
from cutaway.engine.runner import ModelRunner
from cutaway.engine.steps import TapName
from cutaway.engine.watched import StepRows
from cutaway.ops.cpu.arrays import ROW_GROUP, Activation

Places = npt.NDArray[np.int64]


class _Wanted(NamedTuple):
    """Of one sequence's rows in a step, those that are to be kept."""

    rows: StepRows
    places: dict[tuple[int, bool], Places]  # by mask, and by whether it is of outputs


class TapWatch:
    """Implements ``engine.watched.Watch``. What a step brings is held apart until the step counts."""

    def __init__(self, plan: TapPlan, runner: ModelRunner) -> None:
        self.plan = plan
        self.num_bytes, self.needs_all_logits = plan.num_bytes, plan.needs_all_logits
        self._runner = weakref.ref(runner)  # so that what was tapped doesn't hold a model that was closed
        self._by_operation: dict[tuple[str, int], list[TapTensor]] = {}
        for tensor, layer in plan.wanted:
            self._by_operation.setdefault((tensor.source, layer), []).append(tensor)
        self._rooms: dict[tuple[TapTensor, int, int | None], TapRoom] = {}  # once a step brings rows
        self._seen: dict[int, int] = {}  # of each choice, positions from the first on; see ``_seen_of``
        self._here: list[_Wanted] = []  # of the step
        self._new_seen: dict[int, int] = {}

    def describe(self) -> str:
        """What the bytes are for."""
        return self.plan.describe()

    def prepare(self) -> None:
        """Compile what derived tensors take."""
        runner = self._runner()
        if runner is not None and any(tensor.name in DERIVED for tensor, _ in self.plan.wanted):
            prepare_attention_rows(runner)

    def begin(self, rows: Sequence[StepRows]) -> None:
        """A step begins: find its rows that are wanted."""
        for room in self._rooms.values():
            room.drop()
        self._new_seen = dict(self._seen)
        self._here = [self._wanted(each) for each in rows]

    def _wanted(self, rows: StepRows) -> _Wanted:
        batch, seen = rows.batch, self._seen_of(rows.choice)
        of_tokens = np.arange(rows.tokens.start, rows.tokens.stop)
        of_outputs = np.arange(rows.outputs.start, rows.outputs.stop)
        self._new_seen[rows.choice] = max(seen, int(batch.positions[rows.tokens.stop - 1]) + 1)
        token_positions = batch.positions[of_tokens]
        output_positions = batch.positions[batch.output_rows[of_outputs]]
        found = _Wanted(rows, {})
        for mask in {id(each): each for each in self.plan.wanted.values()}.values():
            for is_output, places, positions in (
                (False, of_tokens, token_positions),
                (True, of_outputs, output_positions),
            ):
                found.places[id(mask), is_output] = places[mask[positions] & (positions >= seen)]
        return found

    def _seen_of(self, choice: int) -> int:
        """Positions of a choice that have been seen; the prompt is the first one's to show."""
        return self._seen.get(choice, self.plan.num_prompt if choice else 0)

    @property
    def wanted(self) -> Set[TapName]:
        """Those operations of which the step has rows that are wanted."""
        return {
            (tensor.source, layer)
            for (tensor, layer), mask in self.plan.wanted.items()
            if any(len(places[id(mask), tensor.of_outputs]) for _, places in self._here)
        }

    def see(self, name: str, layer: int, array: npt.NDArray[Any]) -> None:
        """An operation is done: copy what is wanted of it."""
        for tensor in self._by_operation.get((name, layer), ()):
            mask = self.plan.wanted[tensor, layer]
            for rows, found in self._here:
                places = found[id(mask), tensor.of_outputs]
                if len(places):
                    self._take(tensor, layer, rows, places, array)

    def _take(self, tensor: TapTensor, layer: int, rows: StepRows, places: Places, array: npt.NDArray[Any]) -> None:
        runner = self._runner()
        assert runner is not None, "a step is being run"
        tokens = rows.batch.output_rows[places] if tensor.of_outputs else places
        positions = rows.batch.positions[tokens]
        values: npt.NDArray[Any]
        if tensor.source == "kv_write" and tensor.name != "kv_write":
            table = rows.batch.block_tables[rows.batch.sequences[tokens[0]]]
            values = cache_rows(runner.kv, tensor.name, layer, table, positions)
        elif tensor.name in DERIVED:
            found = attention_rows(runner, runner.workspace, runner.kv, rows.batch, layer, places)
            values = found.scores if tensor.name == "attn.scores" else found.weights()
        elif tensor.name != tensor.source:
            part = tensor.name.rpartition(".")[2]
            width = tensor.row(self.plan.dimensions)[0]
            values = sums_of(runner.workspace.activation, part, places)[:, :width]
        else:
            values = array[places, : tensor.row(self.plan.dimensions)[0]]
        # Rows that are new are the prompt's or an answer's: no token is there before all of the prompt was computed.
        is_prompt = self.plan.num_choices == 1 or int(positions[0]) < self.plan.num_prompt
        self._room(tensor, layer, None if is_prompt else rows.choice).add(positions, values)

    def _room(self, tensor: TapTensor, layer: int, answer: int | None) -> TapRoom:
        room = self._rooms.get((tensor, layer, answer))
        if room is None:
            room = self._rooms[tensor, layer, answer] = TapRoom(self.plan, tensor, layer, answer)
        return room

    def keep(self) -> None:
        """The step counts."""
        for room in self._rooms.values():
            room.keep()
        self._seen = self._new_seen

    def result(self) -> Mapping[str, TappedRows]:
        """What was kept so far."""
        found = [room.tapped() for room in list(self._rooms.values())]
        return Taps([each for each in found if each is not None])


def sums_of(activation: Activation, part: str, rows: Places) -> npt.NDArray[Any]:
    """A part of the quantised activations beside the integers, one of ``SUMS``, of these rows: [k, K/32]."""
    assert part in SUMS, part
    found: npt.NDArray[Any] = getattr(activation, part)[rows // ROW_GROUP, :, rows % ROW_GROUP]
    return found
