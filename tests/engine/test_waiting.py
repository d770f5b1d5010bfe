"""Requests that wait: what their ids take, and how a queue of few places is kept full."""

import gc
import tracemalloc
from pathlib import Path

from core_rig import Rig
from prefix_runner import PrefixRunner

from cutaway import LLM, SamplingParams
from cutaway.engine.requests import Requests


def waiting_bytes(llm: LLM, length: int) -> int:
    """What 20 requests with ``length`` ids each take while they wait."""
    rig = Rig(PrefixRunner(context=1 << 20), num_blocks=1 << 16, limits={"max_waiting_tokens": 1 << 30})
    requests = Requests(llm.tokenizer, 1 << 20, 1, SamplingParams())
    gc.collect()
    tracemalloc.start()
    try:
        kept = []
        for number in range(20):
            ids = [300 + (each * 7 + number) % 40_000 for each in range(length)]
            kept.append(requests.make((None, ids), SamplingParams(max_tokens=1), lambda arrival: None))
            rig.core.submit(kept[-1].generation)
        del ids
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_an_id_that_waits_takes_few_bytes(smollm2_path: Path) -> None:
    """As Python's integers in a list it would be 36: 38 MB for a full queue."""
    with LLM(smollm2_path, threads=1, max_model_len=64) as llm:
        short, long = waiting_bytes(llm, 2_000), waiting_bytes(llm, 4_000)
    assert (long - short) / (20 * 2_000) < 10


def test_a_queue_with_few_places_leaves_no_row_empty(smollm2_path: Path) -> None:
    """One place to wait, eight rows: all eight requests run together before long."""
    with LLM(smollm2_path, threads=1, max_model_len=256, max_num_seqs=8, max_waiting=1) as llm:
        params = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True)
        outputs = llm.generate([[5 + number] for number in range(8)], params, use_tqdm=False)
        assert [len(each.outputs[0].token_ids) for each in outputs] == [200] * 8
        assert llm.totals().steps < 8 * 200 / 2
