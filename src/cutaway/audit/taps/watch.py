"""The watch of one request: it copies the rows that are wanted while its steps are run open.

In: a plan, a runner, and operation after operation of each step. Out: rows, tensor by tensor. Positions come in order;
those that are computed again, after a preemption or without a cache, have been seen and are not kept twice.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.audit.taps.attention_rows import attention_rows, prepare_attention_rows
from cutaway.audit.taps.cache_rows import cache_rows
from cutaway.audit.taps.plan import TapPlan
from cutaway.audit.taps.results import TapRoom, Taps
from cutaway.audit.taps.tensors import DERIVED, SUMS, TapTensor
from cutaway.engine.outputs import TappedRows
from cutaway.engine.runner import ModelRunner
from cutaway.engine.watched import StepRows
from cutaway.ops.cpu.arrays import ROW_GROUP, Activation

Places = npt.NDArray[np.int64]


class TapWatch:
    """Implements ``engine.watched.Watch``. What a step brings is held apart until the step counts."""

    def __init__(self, plan: TapPlan, runner: ModelRunner) -> None:
        self.plan = plan
        self.num_bytes, self.needs_all_logits = plan.num_bytes, plan.needs_all_logits
        self._runner = weakref.ref(runner)  # so that what was tapped doesn't hold a model that was closed
        self._by_operation: dict[tuple[str, int], list[TapTensor]] = {}
        for tensor, layer in plan.wanted:
            self._by_operation.setdefault((tensor.source, layer), []).append(tensor)
        if any(tensor.name in DERIVED for tensor, _ in plan.wanted):
            prepare_attention_rows(runner)
        self._rooms: dict[tuple[TapTensor, int], TapRoom] = {}  # once a step brings rows
        self._seen = 0  # positions, from the first on
        self._rows: StepRows | None = None
        self._here: dict[tuple[int, bool], Places] = {}  # rows of the step, by mask and by whether it is of outputs
        self._new_seen = 0

    def describe(self) -> str:
        """What the bytes are for."""
        return self.plan.describe()

    def begin(self, rows: StepRows) -> None:
        """A step begins: find its rows that are wanted."""
        batch = rows.batch
        self._rows, self._here = rows, {}
        for room in self._rooms.values():
            room.drop()
        of_tokens = np.arange(rows.tokens.start, rows.tokens.stop)
        of_outputs = np.arange(rows.outputs.start, rows.outputs.stop)
        self._new_seen = max(self._seen, int(batch.positions[rows.tokens.stop - 1]) + 1)
        token_positions = batch.positions[of_tokens]
        output_positions = batch.positions[batch.output_rows[of_outputs]]
        for mask in {id(each): each for each in self.plan.wanted.values()}.values():
            for is_output, places, positions in (
                (False, of_tokens, token_positions),
                (True, of_outputs, output_positions),
            ):
                self._here[id(mask), is_output] = places[mask[positions] & (positions >= self._seen)]

    def see(self, name: str, layer: int, array: npt.NDArray[Any]) -> None:
        """An operation is done: copy what is wanted of it."""
        for tensor in self._by_operation.get((name, layer), ()):
            places = self._here[id(self.plan.wanted[tensor, layer]), tensor.of_outputs]
            if len(places):
                self._take(tensor, layer, places, array)

    def _take(self, tensor: TapTensor, layer: int, places: Places, array: npt.NDArray[Any]) -> None:
        rows, runner = self._rows, self._runner()
        assert rows is not None and runner is not None, "a step is being run"  # noqa: PT018
        tokens = rows.batch.output_rows[places] if tensor.of_outputs else places
        positions = rows.batch.positions[tokens]
        values: npt.NDArray[Any]
        if tensor.source == "kv_write" and tensor.name != "kv_write":
            table = rows.batch.block_tables[rows.batch.sequences[tokens[0]]]
            values = cache_rows(runner.kv, tensor.name, layer, table, positions)
        elif tensor.name in DERIVED:
            found = attention_rows(runner, rows.batch, layer, places)
            values = found.scores if tensor.name == "attn.scores" else found.weights()
        elif tensor.name != tensor.source:
            part = tensor.name.rpartition(".")[2]
            width = tensor.row(self.plan.dimensions)[0]
            values = sums_of(runner.workspace.activation, part, places)[:, :width]
        else:
            values = array[places, : tensor.row(self.plan.dimensions)[0]]
        self._room(tensor, layer).add(positions, values)

    def _room(self, tensor: TapTensor, layer: int) -> TapRoom:
        room = self._rooms.get((tensor, layer))
        if room is None:
            room = self._rooms[tensor, layer] = TapRoom(self.plan, tensor, layer)
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
