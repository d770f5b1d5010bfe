"""A batch whose arrays are kept from step to step is the one that is made anew."""

import random
from collections import Counter

import numpy as np
import pytest
from core_rig import Rig
from prefix_runner import PrefixRunner

from cutaway.engine.step_batch import SPARE_PAGES, StepBatches
from cutaway.model.batch import NO_PAGE
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.scheduler.step import Step


class Watched(StepBatches):
    """Compares each batch with a fresh one."""

    def __init__(self) -> None:
        super().__init__(None)
        self.last: Batch | None = None
        self.events: Counter[str] = Counter()

    def batch_of(self, step: Step) -> Batch:
        tables = None if self.last is None else self.last.block_tables.copy()
        batch, fresh = super().batch_of(step), StepBatches(None).batch_of(step)
        for name, ours, anew in zip(Batch._fields, batch, fresh, strict=True):
            if name == "block_tables":
                columns = max(len(piece.sequence.blocks.blocks) for piece in step.pieces)
                assert batch.block_tables.shape[1] >= columns
                assert (ours[:, columns:] == NO_PAGE).all()
                ours, anew = ours[:, :columns], anew[:, :columns]
            np.testing.assert_array_equal(ours, anew, err_msg=name)
            assert ours.dtype == anew.dtype
        if batch is self.last:
            self.events["kept"] += 1
            self.events["other pages"] += not np.array_equal(tables, batch.block_tables)
        elif all(piece.num_tokens == 1 for piece in step.pieces):
            self.events["made anew"] += 1
        self.last = batch
        return batch


def test_kept_arrays_are_those_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random requests over small pools, aborted now and then, with pages that others take over and steps that fail."""
    events: Counter[str] = Counter()
    for seed in range(12):
        rng = random.Random(seed)
        rig = Rig(PrefixRunner(60, 20, 9, 4, rng.choice((1, 2, 4))), num_blocks=rng.choice((60, 90)), max_sequences=4)
        watched = rig.core._batches = Watched()
        step = rig.runner.step

        def fails_sometimes(batch: Batch, rng: random.Random = rng, step: object = step) -> Floats:
            if rng.random() < 0.05:
                raise MemoryError
            return step(batch)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(rig.runner, "step", fails_sometimes)
        prefix = [rng.randrange(9) for _ in range(20)]
        for _ in range(8):
            prompt = [*prefix[: rng.randint(1, 20)], rng.randrange(9)]
            rig.ask(prompt, seed=rng.randrange(3), max_tokens=rng.choice((5, 30)), n=rng.choice((1, 1, 3)))
        while rig.core.has_work:
            try:
                rig.core.step()
            except MemoryError:
                events["failed"] += 1
            if rng.random() < 0.01:
                rig.core.abort(rng.choice(rig.core.generations()))
            rig.core.check()
        events += watched.events
    assert min(events[each] for each in ("kept", "other pages", "made anew", "failed")) > 10, events


def test_a_long_answer_outgrows_the_columns() -> None:
    rig = Rig(PrefixRunner(60, 20, 9, 4, 1))
    watched = rig.core._batches = Watched()
    rig.ask([1, 2], max_tokens=50)
    rig.run()
    assert watched.events["made anew"] == -(-49 // (SPARE_PAGES + 1))
    assert watched.events["kept"] == 49 - watched.events["made anew"]
