"""The streaming limit: how fast the threads read memory, and how much of it a decoding step must read.

In: a model, a number of threads. Out: the rate, measured by the fixed probe of ``cutaway.audit.limits`` over as many
bytes as the model's weights have; the bytes of a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cutaway.audit.costs import step_costs, works_of
from cutaway.audit.limits import Rate, measure_limits
from cutaway.audit.speed import Workload
from cutaway.formats.open_model import open_model
from cutaway.model.batch import Piece, make_batch
from cutaway.model.config import ModelConfig, read_config
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.ops.cpu.threads import ThreadTeam

PROBE_SECONDS = 0.3  # of each of the probes of a round
KV_BYTES = 2  # of a number in the KV cache: every engine's default is float16, or bfloat16


@dataclass(frozen=True)
class Model:
    """What the limits depend on."""

    config: ModelConfig
    weight_bytes: dict[str, int]

    @classmethod
    def of(cls, path: Path) -> "Model":
        """Read the file's head."""
        with open_model(path) as source:
            return cls(read_config(source), {name: tensor.nbytes for name, tensor in source.tensors.items()})

    def kv_bytes(self, positions: int) -> int:
        """Keys and values of so many positions."""
        return positions * self.config.num_layers * self._layer_bytes()

    def _layer_bytes(self) -> int:
        """Of one position in one layer."""
        return 2 * KV_BYTES * self.config.num_kv_heads * self.config.head_dim

    def step_bytes(self, work: Workload) -> int:
        """Weights and KV that a step in the middle of the answers reads and writes: each once for all sequences, and
        each sequence's own.
        """
        position = work.prompt_tokens + work.new_tokens // 2
        each = -(-(position + 1) // SUBTILE)
        pages = np.arange(each * work.sequences, dtype=np.int32).reshape(work.sequences, each)
        works = works_of(self.config, make_batch([Piece(position, [0], own) for own in pages]))
        costs = step_costs(self.config, self.weight_bytes, works, self._layer_bytes()).values()
        return sum(cost.weight_bytes + cost.kv_bytes for cost in costs)


def streaming_probe(model: Model, threads: int) -> Callable[[], Rate]:
    """Measures the rate of streaming reads, in bytes a second, when it is called."""
    team = ThreadTeam(threads)
    return lambda: measure_limits(team, sum(model.weight_bytes.values()), PROBE_SECONDS).stream
