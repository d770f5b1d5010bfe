"""The shadow check: every operation of a real run is repeated in float64 on its own inputs, so that no error compounds.

In: a loaded model, and its weights as the file has them, dequantised. Out: the errors of each operation's calls in a
run of two steps: a prefill of two sequences, then a step that mixes a new token with a chunk.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.memory.kv_cache import KVPool
from cutaway.model.forward import rebind
from cutaway.model.loader import LoadedModel
from cutaway.model.records import Model
from cutaway.ops import cpu, reference
from cutaway.ops.cpu.arrays import Activation, Batch
from cutaway.ops.cpu.kv_tiles import SUBTILE, KVCache
from support.activations import by_row
from support.pools import stored
from support.rig import Pages, Part, run_schedule

BOUNDS = {
    "embed": 0.0,  # the file's values
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

OUTPUT = {"embed": 3, "add_positions": 2, "rope_angles": 3, "norm": 2, "head_norm": 0, "matmul": 3, "rope": 0}
OUTPUT |= {"attention": 11, "activate": 2, "add_rows": 0, "take_rows": 2, "softcap": 0}
"""Which argument behind the team an operation writes."""

SEQUENCES = [[1, *range(300, 322), 5], [1, *range(9000, 9010), 77, 78, 79, 80]]
"""Ids, taken modulo the vocabulary."""
STEPS = [[Part(0, 0, 23), Part(1, 0, 11)], [Part(1, 11, 15), Part(0, 23, 24)]]

Errors = dict[str, list[float]]


def relative(got: npt.NDArray[Any], exact: npt.NDArray[np.float64]) -> float:
    if exact.size == 0:
        return 0.0
    return float(np.abs(got - exact).max() / np.abs(exact).max())


class Shadow:
    """A table of operations that run compiled and, on copies of the same inputs, by definition."""

    def __init__(self, loaded: LoadedModel, exact: Model, data_type: str) -> None:
        self.data_type = data_type
        self.errors: Errors = collections.defaultdict(list)
        self.pool: KVPool | None = None
        ours, theirs = loaded.record, exact
        pairs = [(ours.embedding, theirs.embedding), (ours.head, theirs.head), (ours.layers, theirs.layers)]
        self._dense = {
            (int(record["tiles"]), int(record["rows"])): dense
            for records, matrices in pairs
            for record, dense in zip(records.ravel(), matrices.ravel(), strict=True)
        }
        # Norms by the address of their weight; 0 is that of one which the model doesn't have.
        self._norms = {
            int(record["weight"]): dense
            for name in ours._fields
            if name.endswith("_norm")
            for record, dense in zip(getattr(ours, name), getattr(theirs, name), strict=True)
        }

    def table(self) -> dict[str, Callable[..., None]]:
        operations = {name: self._operation(name) for name in reference.TABLE if name != "tap"}
        return {**operations, "tap": reference.TABLE["tap"]}

    def _operation(self, name: str) -> Callable[..., None]:
        compiled, exact = getattr(cpu, name), reference.TABLE[name]

        def run(team: Any, *arguments: Any) -> None:
            if name == "quantize_rows":
                compiled(team, *arguments)
                self._check_quantized(*arguments)
            elif name == "kv_write":
                compiled(team, *arguments)
                self._check_written(*arguments)
            else:
                shadows = [self._in_float64(argument) for argument in arguments]
                compiled(team, *arguments)
                place = OUTPUT[name]
                if shared := next((i for i in range(place) if arguments[i] is arguments[place]), None):
                    shadows[shared] = shadows[place]
                exact(None, *shadows)
                self.errors[name].append(relative(arguments[place], shadows[place]))

        return run

    def _in_float64(self, argument: Any) -> Any:
        if isinstance(argument, KVCache):
            return self._cache()
        if isinstance(argument, Activation):
            scale, K = by_row(argument.scale), argument.q.shape[1]
            T = min(len(argument.q), len(scale))  # both have room for more rows than a step has
            values = argument.q[:T].astype(np.float64).reshape(T, -1, 32) * scale[:T, : K // 32, None]
            return argument._replace(q=values.reshape(T, K))
        if isinstance(argument, np.void):
            return self._norms[int(argument["weight"])]
        if isinstance(argument, np.ndarray) and argument.dtype.names:
            return [self._dense[int(record["tiles"]), int(record["rows"])] for record in argument]
        if isinstance(argument, np.ndarray) and argument.dtype == np.float32:
            return argument.astype(np.float64)
        return argument

    def _cache(self) -> reference.ReferenceKV:
        """The pool as slots: [L, S · 16, Hkv, Dh]."""
        assert self.pool is not None
        pool = self.pool
        L, S, Hkv, Dh, _ = pool.keys.shape
        keys, values = pool.keys.astype(np.float64), pool.values.astype(np.float64)
        if self.data_type == "int8":
            keys, values = keys * pool.key_scales[..., None, :], values * pool.value_scales[..., None]
        return reference.ReferenceKV(
            keys.transpose(0, 1, 4, 2, 3).reshape(L, S * SUBTILE, Hkv, Dh),
            values.transpose(0, 1, 3, 2, 4).reshape(L, S * SUBTILE, Hkv, Dh),
            pool.page_length,
        )

    def _check_quantized(self, x: Any, activation: Activation) -> None:
        T, K = x.shape
        q = activation.q[:T, :K].reshape(T, -1, 32).astype(np.int64)
        scale, block_sum, scaled_sum = (by_row(each)[:T, : K // 32] for each in activation[1:])
        error = np.abs(q * scale[..., None].astype(np.float64) - x.reshape(q.shape))
        self.errors["quantize_rows"].append(float((error / np.where(scale == 0, 1, scale)[..., None]).max()))
        assert np.array_equal(block_sum, q.sum(axis=2))
        assert np.array_equal(scaled_sum, scale * q.sum(axis=2).astype(np.float32))

    def _check_written(self, qkv: Any, batch: Batch, kv: KVCache, layer: int, H: int, Hkv: int, Dh: int) -> None:
        assert self.pool is not None
        cache = self._cache()
        heads = stored(qkv.reshape(len(qkv), H + 2 * Hkv, Dh)[:, H:], self.data_type)
        slots = [reference.slots_of(batch, cache, s, p) for s, p in zip(batch.sequences, batch.positions, strict=True)]
        wrong = (cache.keys[layer, slots] != heads[:, :Hkv]).sum() + (
            cache.values[layer, slots] != heads[:, Hkv:]
        ).sum()
        self.errors["kv_write"].append(float(wrong))


def shadow_run(loaded: LoadedModel, exact: Model, data_type: str) -> Errors:
    """Each operation's errors, a number for each call."""
    shadow = Shadow(loaded, exact, data_type)

    def remember(pool: KVPool, work: Any) -> None:
        shadow.pool = pool

    forward = rebind(shadow.table(), "forward_shadow")
    pages = Pages(data_type=data_type)
    sequences = [[token % loaded.config.vocab_size for token in ids] for ids in SEQUENCES]
    run_schedule(loaded, sequences, STEPS, forward=forward, pages=pages, before_step=remember)
    return shadow.errors


def exceeding(errors: Errors, bounds: Mapping[str, float] = BOUNDS) -> dict[str, float]:
    """The greatest error of each operation that breaks its bound; NaN breaks any."""
    worst = {name: max(each) for name, each in errors.items()}
    return {name: error for name, error in worst.items() if not error <= bounds[name]}
