"""The table of what can be tapped: each tensor's name, and what a position's row of it is.

In: a model's config and the type of its KV cache. Out: names with shapes in the shape table's dimensions. They are the
names under which an open run shows its results, what these have beside them, and what is derived from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cutaway.model.shapes import LAYER_TAPS, TAPS, evaluate
from cutaway.ops.cpu.kv_tiles import KVFormat

ALIASES: Final[Mapping[str, str]] = MappingProxyType({"resid": "ffn_residual"})
"""What others call the same: the residual stream behind a layer."""

QUANTIZED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attention_input": "attention_norm",
        "attention_output_input": "attention",
        "ffn_input": "ffn_norm",
        "down_input": "activate",
        "head_input": "output_norm",
    }
)
"""The quantised inputs of matrix products, and the tensors that they are made of, whose width they have: the buffer is
wider, and holds there what was in it before.
"""

SUMS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "scale": ("float32", "the scale of each block of 32"),
        "block_sum": ("int32", "the sum of its integers"),
        "scaled_sum": ("float32", "scale · sum"),
    }
)
"""What a quantised input has beside its integers, by the names of ``Activation``."""

DERIVED: Final = ("attn.scores", "attn.weights")


@dataclass(frozen=True)
class TapTensor:
    """A tensor that can be tapped: one row for each position, and for each layer where it is in the layers."""

    name: str
    shape: tuple[str, ...]  # of a row; C is the number of positions up to the last that was tapped
    dtype: str
    in_layers: bool
    of_outputs: bool  # it has rows only where logits are computed
    source: str  # the operation behind which it is taken
    meaning: str = ""

    def row(self, dimensions: Mapping[str, int]) -> tuple[int, ...]:
        """The actual shape of a row."""
        return tuple(evaluate(entry, dimensions) for entry in self.shape)

    def key(self, layer: int) -> str:
        """The name with the layer, as in ``layers.3.attention``."""
        return f"layers.{layer}.{self.name}" if self.in_layers else self.name


def _operation(name: str) -> TapTensor:
    rows, width = TAPS[QUANTIZED.get(name, name)]
    meaning = f"{QUANTIZED[name]} in int8, in blocks of 32" if name in QUANTIZED else f"the result of {name}"
    dtype = "int8" if name in QUANTIZED else "float32"
    return TapTensor(name, (width.replace("Vt", "V"),), dtype, name in LAYER_TAPS, rows == "O", name, meaning)


def _beside(quantized: str, part: str) -> TapTensor:
    dtype, meaning = SUMS[part]
    whole = _operation(quantized)
    return TapTensor(
        f"{quantized}.{part}", (f"{whole.shape[0]}/32",), dtype, whole.in_layers, whole.of_outputs, quantized, meaning
    )


def _of_cache(name: str, shape: tuple[str, ...], dtype: str, meaning: str) -> TapTensor:
    return TapTensor(name, shape, dtype, True, False, "kv_write", meaning)


def tap_tensors(kv: KVFormat) -> dict[str, TapTensor]:
    """All of them, by name. The order is that of the forward."""
    found = []
    for name in TAPS:
        found.append(_operation(name))
        found += [_beside(name, part) for part in SUMS] if name in QUANTIZED else []
    found += [
        _of_cache("kv.keys", ("Hkv", "Dh"), kv.dtype, "rotated keys, as the cache keeps them"),
        _of_cache("kv.values", ("Hkv", "Dh"), kv.dtype, "values, as the cache keeps them"),
    ]
    if kv.scaled:
        found += [
            _of_cache("kv.key_scales", ("Hkv",), "float32", "what the numbers of a key are multiplied with"),
            _of_cache("kv.value_scales", ("Hkv",), "float32", "what the numbers of a value are multiplied with"),
        ]
    of_attention = (
        ("attn.scores", "scale · q·k, soft-capped where the model does so; -∞ where nothing is attended"),
        ("attn.weights", "softmax of the scores: how much of each position's value a head takes"),
    )
    found += [TapTensor(name, ("H", "C"), "float32", True, False, "attention", what) for name, what in of_attention]
    return {each.name: each for each in found}
