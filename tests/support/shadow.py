"""The shadow check: every operation of a real run is repeated in float64 on its own inputs, so that no error compounds.

In: a loaded model, and its weights as the file has them, dequantised. Out: the errors of each operation's calls in a
run of two steps: a prefill of two sequences, then a step that mixes a new token with a chunk.
"""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.audit.parity.shadow import Call, Shadow
from cutaway.memory.kv_cache import KVPool
from cutaway.model.forward import rebind
from cutaway.model.loader import LoadedModel
from cutaway.model.records import Model
from cutaway.ops import reference
from support.activations import by_row
from support.pools import stored
from support.rig import Pages, Part, run_schedule

BOUNDS = {
    "embed": 0.0,  # the file's values, their product with a scale rounded once
    "rope_angles": 6e-8,  # one rounding to float32
    "add_positions": 6e-8,
    "norm": 5e-7,
    "head_norm": 5e-7,
    "quantize_rows": 0.5001,  # of a step of the int8 grid
    "matmul": 1e-6,
    "rope": 2e-7,
    "kv_write": 0.0,  # NumPy's rounding to the cache's type
    "attention": 1e-5,
    "activate": 5e-7,
    "softcap": 5e-7,
    "add_rows": 6e-8,
    "take_rows": 0.0,
}
"""Greatest |error| / greatest |exact value| of a call. Attention's holds for keys and values as the cache keeps them:
exact for f32; with f16 and int8 the shadow reads the rounded ones, and the bound is the same.
"""

SEQUENCES = [[1, *range(300, 322), 5], [1, *range(9000, 9010), 77, 78, 79, 80]]
"""Ids, taken modulo the vocabulary."""
STEPS = [[Part(0, 0, 23), Part(1, 0, 11)], [Part(1, 11, 15), Part(0, 23, 24)]]

Errors = dict[str, list[float]]


def relative(got: npt.NDArray[Any], exact: npt.NDArray[np.float64]) -> float:
    if exact.size == 0:
        return 0.0
    return float(np.abs(got - exact).max() / np.abs(exact).max())


def error_of(call: Call, data_type: str) -> float:
    """In the measure of ``BOUNDS``."""
    if call.operation == "quantize_rows":
        return quantization_error(*call.arguments)
    if call.operation == "embed":
        return float((call.got != call.exact.astype(np.float32)).sum())
    if call.operation == "kv_write":
        return float((call.got != stored(call.exact.astype(np.float32), data_type)).sum())
    return relative(call.got, call.exact)


def quantization_error(x: Any, activation: Any) -> float:
    """In steps of the int8 grid; the sums that go with it must be right."""
    T, K = x.shape
    q = activation.q[:T, :K].reshape(T, -1, 32).astype(np.int64)
    scale, block_sum, scaled_sum = (by_row(each)[:T, : K // 32] for each in activation[1:])
    error = np.abs(q * scale[..., None].astype(np.float64) - x.reshape(q.shape))
    assert np.array_equal(block_sum, q.sum(axis=2))
    assert np.array_equal(scaled_sum, scale * q.sum(axis=2).astype(np.float32))
    return float((error / np.where(scale == 0, 1, scale)[..., None]).max())


def shadow_run(loaded: LoadedModel, exact: Model, data_type: str) -> Errors:
    """Each operation's errors, a number for each call."""
    errors: Errors = collections.defaultdict(list)

    def note(call: Call) -> None:
        errors[call.operation].append(error_of(call, data_type))

    shadow = Shadow(exact, data_type, note)

    def remember(pool: KVPool, work: Any) -> None:
        shadow.pool = pool

    forward = rebind({**shadow.table(), "tap": reference.TABLE["tap"]}, "forward_shadow")
    pages = Pages(data_type=data_type)
    sequences = [[token % loaded.config.vocab_size for token in ids] for ids in SEQUENCES]
    run_schedule(loaded, sequences, STEPS, forward=forward, pages=pages, before_step=remember)
    return errors


def exceeding(errors: Errors, bounds: Mapping[str, float] = BOUNDS) -> dict[str, float]:
    """The greatest error of each operation that breaks its bound; NaN breaks any."""
    worst = {name: max(each) for name, each in errors.items()}
    return {name: error for name, error in worst.items() if not error <= bounds[name]}
