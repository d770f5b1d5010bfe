"""The shadow: every operation of a real run, repeated in float64 on its own inputs.

In: the model by definition, a KV pool. Out: a table of operations for ``model.forward.rebind``; after each operation a
``Call``: what the engine wrote, and what is exact. No error compounds, since what an operation is given by the step is
the engine's own; weights, scales and the like are the definition's.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.parity.definition import GIVEN, calls_of
from cutaway.memory.kv_cache import KVPool
from cutaway.model.records import Model
from cutaway.ops import cpu, reference
from cutaway.ops.cpu.arrays import Activation, Batch
from cutaway.ops.cpu.kv_tiles import SUBTILE

Array = npt.NDArray[Any]

OUTPUT: Final = {
    "embed": 3,
    "add_positions": 2,
    "rope_angles": 3,
    "norm": 2,
    "head_norm": 0,
    "matmul": 3,
    "rope": 0,
    "attention": 11,
    "activate": 2,
    "add_rows": 0,
    "take_rows": 2,
    "softcap": 0,
}
"""Which argument behind the team an operation writes."""


class Call(NamedTuple):
    """One operation, called once."""

    operation: str
    arguments: tuple[Any, ...]  # the engine's own, as they are after the call
    defined: tuple[Any, ...]  # the definition's, ``GIVEN`` where they are the step's
    shadows: tuple[Any, ...]  # in float64, of which one is ``exact``; none for quantize_rows and kv_write
    got: Array  # what the engine wrote, as float64 means it: [T, …]
    exact: Array  # what the definition gives for the same inputs, in the same shape


class Shadow:
    """A table of operations that run compiled and, on copies of the same inputs, by definition."""

    def __init__(self, exact: Model, data_type: str, found: Callable[[Call], None]) -> None:
        """data_type: of keys and values. found: hears of each call, after it."""
        self.pool: KVPool | None = None  # to be set before a step
        self._calls, self._next = calls_of(exact), 0
        self._data_type, self._found = data_type, found

    def table(self) -> dict[str, Callable[..., None]]:
        """All operations, but not the tap."""
        return {name: self._operation(name) for name in reference.TABLE if name != "tap"}

    def _operation(self, name: str) -> Callable[..., None]:
        compiled, exact = getattr(cpu, name), reference.TABLE[name]

        def run(team: Any, *arguments: Any) -> None:
            defined = self._defined(name)
            if name == "quantize_rows":
                compiled(team, *arguments)
                x, activation = arguments
                self._found(Call(name, arguments, defined, (), dequantized(activation, *x.shape), x.astype(np.float64)))
            elif name == "kv_write":
                compiled(team, *arguments)
                qkv, batch, _, layer, H, Hkv, Dh = arguments
                heads = qkv.reshape(len(qkv), H + 2 * Hkv, Dh)[:, H:].astype(np.float64)
                self._found(Call(name, arguments, defined, (), self._written(batch, layer), heads))
            else:
                shadows = [
                    _in_float64(own) if constant is GIVEN else constant
                    for own, constant in zip(arguments, defined, strict=True)
                ]
                if name == "attention":
                    shadows[2], shadows[3] = self._cache(arguments[3]), 0
                compiled(team, *arguments)
                place = OUTPUT[name]
                if shared := next((i for i in range(place) if arguments[i] is arguments[place]), None):
                    shadows[shared] = shadows[place]
                exact(None, *shadows)
                self._found(Call(name, arguments, defined, tuple(shadows), arguments[place], shadows[place]))

        return run

    def _defined(self, name: str) -> tuple[Any, ...]:
        """The definition's arguments for the call that is to come; a step begins with ``embed``."""
        number = 0 if name == "embed" else self._next
        self._next = number + 1
        call = self._calls[number]
        assert call.operation == name, f"{name} in the place of {call.operation}"
        return call.arguments

    def _cache(self, layer: int) -> reference.ReferenceKV:
        """One layer of the pool as slots: [1, S · 16, Hkv, Dh]."""
        pool = self._pool()
        _, S, Hkv, Dh, _ = pool.keys.shape
        keys, values = pool.keys[layer].astype(np.float64), pool.values[layer].astype(np.float64)
        if self._data_type == "int8":
            keys, values = keys * pool.key_scales[layer, ..., None, :], values * pool.value_scales[layer, ..., None]
        return reference.ReferenceKV(
            keys.transpose(0, 3, 1, 2).reshape(1, S * SUBTILE, Hkv, Dh),
            values.transpose(0, 2, 1, 3).reshape(1, S * SUBTILE, Hkv, Dh),
            pool.page_length,
        )

    def _written(self, batch: Batch, layer: int) -> Array:
        """[T, 2 Hkv, Dh]: the step's keys, then values, as the cache keeps them."""
        cache = self._cache(layer)
        slots = [reference.slots_of(batch, cache, s, p) for s, p in zip(batch.sequences, batch.positions, strict=True)]
        found: Array = np.concatenate([cache.keys[0, slots], cache.values[0, slots]], axis=1)
        return found

    def _pool(self) -> KVPool:
        assert self.pool is not None
        return self.pool


def _in_float64(argument: Any) -> Any:
    """What a step gave: arrays of float32 and the quantised input as numbers, anything else as it is."""
    if isinstance(argument, Activation):
        rows = min(len(argument.q), by_row(argument.scale).shape[0])  # both have room for more than a step has
        numbers: Any = dequantized(argument, rows, argument.q.shape[1])
        return argument._replace(q=numbers)
    if isinstance(argument, np.ndarray) and argument.dtype == np.float32:
        return argument.astype(np.float64)
    return argument


def by_row(scales: Array) -> Array:
    """An ``Activation``'s numbers for each block, [row groups, blocks, rows of a group], as [rows, blocks]."""
    rows: Array = scales.swapaxes(1, 2).reshape(-1, scales.shape[1])
    return rows


def dequantized(activation: Activation, rows: int, columns: int) -> npt.NDArray[np.float64]:
    """The numbers that the integers stand for, [rows, columns]."""
    scale = by_row(activation.scale)[:rows, : columns // 32].astype(np.float64)
    blocks = activation.q[:rows, :columns].reshape(rows, -1, 32).astype(np.float64) * scale[..., None]
    return blocks.reshape(rows, columns)
