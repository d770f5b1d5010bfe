"""The reference way, through the engine: chunks and taps, on a tiny model."""

from pathlib import Path

import numpy as np

from cutaway.engine.reference_runner import ReferenceRunner
from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.model.batch import Piece, make_batch
from cutaway.model.shapes import LAYER_TAPS, STEP_TAPS
from support.tiny_llama import write_tiny_llama


def test_whole_and_in_chunks_and_near_the_closed_run(tmp_path: Path) -> None:
    ids = [int(each) for each in np.random.default_rng(0).integers(0, 200, 37)]
    pages = range(4)
    with open_gguf(write_tiny_llama(tmp_path / "tiny.gguf")) as gguf:
        whole = ReferenceRunner(gguf, context=64).step(make_batch([Piece(0, ids, pages, len(ids))]))
        chunked = ReferenceRunner(gguf, context=64)
        parts = [
            chunked.step(make_batch([Piece(i, ids[i : i + 10], pages, len(ids[i : i + 10]))])) for i in range(0, 37, 10)
        ]
        with ModelRunner(gguf, threads=1, context=64, max_outputs=37, kv_dtype="f32") as runner:
            closed = runner.step(make_batch([Piece(0, ids, pages, len(ids))])).copy()
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-9, atol=1e-9)
    assert np.isfinite(whole).all()
    assert np.sqrt(((closed - whole) ** 2).mean()) < 0.05 * whole.std()


def test_its_taps_are_those_of_the_open_run(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    with open_gguf(write_tiny_llama(tmp_path / "tiny.gguf")) as gguf:
        runner = ReferenceRunner(gguf, context=64)
        runner.step(make_batch([Piece(0, [1, 2, 3], range(4))]), lambda name, layer, array: seen.append((name, layer)))
    assert len(seen) == len(STEP_TAPS) + runner.config.num_layers * len(LAYER_TAPS)
    assert {name for name, _ in seen} == {*STEP_TAPS, *LAYER_TAPS}
