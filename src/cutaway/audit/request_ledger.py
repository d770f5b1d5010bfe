"""The ledger of requests, or of all that an engine does for a while: from steps that ran timed among others' steps.

In: an engine whose steps are observed (``StepClocks``), the model's costs, the machine's limits. Out: a
``SharedLedger``: for each operation the time, the operations and the bytes that are a request's own, and how near the
operation came to the limit that binds it. The same stamps, costs and limits as of ``ledger.Ledger``, which repeats one
step; here no step is run for the ledger's sake.

A request's share of an operation is that of its rows: of all tokens, of the rows of logits behind the last layer, and
in attention of all pairs of a query and a position. So shares add up to the step, but for pads, which are nobody's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.cost_model import FIELDS, CostModel
from cutaway.audit.costs import StepWork
from cutaway.audit.ledger import HANDOVER, tap_order
from cutaway.audit.limits import MachineLimits, measure_limits
from cutaway.audit.workloads import decode_batch
from cutaway.engine.core import EngineCore
from cutaway.engine.llm import LLM
from cutaway.engine.observer import Observer
from cutaway.engine.runner import ModelRunner
from cutaway.engine.step_outcome import SeenPiece, SeenStep, StepOutcome
from cutaway.errors import InvalidRequestError
from cutaway.formats.open_model import open_model
from cutaway.model.shapes import STEP_TAPS
from cutaway.ops.cpu.clock import Reading, read_clocks, seconds_per_cycle
from cutaway.scheduler.step import Step

AFTER_LAYERS: Final = tuple(STEP_TAPS)[tuple(STEP_TAPS).index("take_rows") :]
"""Operations whose rows are those of the logits."""
MOST_BYTES: Final = 64 << 20  # of the steps that a ledger keeps; those behind them are counted, and no more
BYTES_OF_STEP: Final = 1000  # and of its cycles
BYTES_OF_PIECE: Final = 360

Doubles = npt.NDArray[np.float64]


class TimedStep(NamedTuple):
    """A step and its cycles: of the handover, then of each operation that the model has."""

    seen: SeenStep
    cycles: npt.NDArray[np.int64]  # [1 + N]

    @property
    def nbytes(self) -> int:
        """What it takes in memory, at most."""
        return BYTES_OF_STEP + self.cycles.nbytes + BYTES_OF_PIECE * len(self.seen.pieces)


@dataclass(frozen=True)
class SharedRow:
    """One operation over many steps."""

    name: str
    calls: int
    seconds: float
    int8_operations: float
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float
    bounds: Mapping[str, float]  # seconds that each limit would allow where it is the one that binds

    @property
    def bound_seconds(self) -> float:
        """The least time that the limits allow."""
        return sum(self.bounds.values())

    @property
    def of_limit(self) -> float | None:
        """How near it came, 1 is at the limit; None where nothing is counted."""
        return self.bound_seconds / self.seconds if self.bound_seconds and self.seconds > 0 else None


@dataclass(frozen=True)
class SharedLedger:
    """What was a request's, or everybody's."""

    steps: int
    tokens: int  # rows of the forward
    outputs: int  # rows of logits
    step_seconds: float  # of these steps as a whole, with sampling and the loop
    rows: tuple[SharedRow, ...]
    left_out: int = 0  # steps that ran timed and were too many to be kept

    @property
    def seconds(self) -> float:
        """Of the operations: this one's share."""
        return sum(row.seconds for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "outputs": self.outputs,
            "step_seconds": self.step_seconds,
            "seconds": self.seconds,
            "left_out": self.left_out,
            "operations": [
                {**asdict(row), "bound_seconds": row.bound_seconds, "of_limit": row.of_limit} for row in self.rows
            ],
        }


class StepMeter:
    """What is needed to read clocks: made once for a model."""

    def __init__(self, runner: ModelRunner, weight_bytes: Mapping[str, int], limits: MachineLimits) -> None:
        """weight_bytes: of each matrix under its name in the file. Compiles the timed forward, if it must be."""
        runner.prepare_timed()
        self.limits = limits
        self.costs = CostModel(runner.config, weight_bytes, runner.kv.position_bytes // runner.config.num_layers)
        order = tap_order(runner.loaded.record, decode_batch(runner, 1), runner.workspace)
        self._stamps = len(order) + 2
        places, place = [0], 0
        for name, _ in order:
            # An operation that the model doesn't have gives its nanoseconds to the one before, as in ``group_rows``.
            place = 1 + self.costs.names.index(name) if name in self.costs.names else place
            places.append(place)
        self._places = np.array(places)
        self._names = len(self.costs.names)
        self.layers_of = {window: runner.config.windows.count(window) for window in self.costs.windows}

    def read(self, seen: SeenStep) -> TimedStep | None:
        """The step's cycles by operation; None for one that did not run timed. On the engine's thread: it is quick."""
        clocks = seen.clocks
        if clocks is None:
            return None
        if clocks.shape[1] != self._stamps + 1 or (clocks[:, 0] != self._stamps).any():
            raise ValueError(f"a timed step has {clocks[:, 0].tolist()} stamps; {self._stamps} are expected")
        parts = np.diff(clocks[:, 1:].min(axis=0))  # see ``ledger.intervals``
        cycles = np.bincount(self._places, parts, 1 + self._names).astype(np.int64)
        return TimedStep(seen._replace(clocks=None), cycles)


def meter_of(llm: LLM, limits: MachineLimits | None = None) -> StepMeter:
    """A meter for this model. limits: None: measured now, which takes a second; the engine should have nothing to do
    meanwhile.

    Raises InvalidRequestError where every step runs open: none would be measured.
    """
    if llm.opens_steps:
        raise InvalidRequestError(
            "the record has each operation, for which every step runs open, and open steps have no clocks. Leave out "
            "the ledger (--ledger, --timings), or record tokens (--record-level tokens).",
            "record_level",
        )
    with open_model(llm.model.path) as source:
        weight_bytes = {name: tensor.nbytes for name, tensor in source.tensors.items()}
    return StepMeter(llm.runner, weight_bytes, measure_limits(llm.runner.team) if limits is None else limits)


class StepClocks(Observer):
    """Has steps run timed: those of certain requests, or all. Methods run on the engine's thread."""

    def __init__(self, meter: StepMeter, request_ids: Iterable[str] | None = None) -> None:
        """request_ids: None: of all steps."""
        self.request_ids = None if request_ids is None else set(request_ids)
        self.timed: list[TimedStep] = []
        self.left_out = 0
        self._num_bytes = 0
        self._meter = meter
        self._first: Reading | None = None
        self._last: Reading | None = None

    def begin(self, core: EngineCore) -> None:
        """From the next step on."""
        self._first = read_clocks()
        core.observers.append(self)

    def end(self, core: EngineCore) -> None:
        """No more."""
        if self in core.observers:
            core.observers.remove(self)
        self._last = read_clocks()

    def narrow(self, request_ids: Iterable[str]) -> None:
        """From now on those of these requests alone."""
        self.request_ids = set(request_ids)

    def wants_clocks(self, step: Step) -> bool:
        """Where it has a piece of these requests."""
        ids = self.request_ids
        return ids is None or any(piece.sequence.request.id in ids for piece in step.pieces)

    def stepped(self, outcome: StepOutcome) -> None:
        """Keep its clocks, if it has any."""
        timed = None if outcome.computed.clocks is None else self._meter.read(outcome.seen)
        if timed is None:
            return
        if self.left_out or self._num_bytes + timed.nbytes > MOST_BYTES:
            self.left_out += 1
        else:
            self._num_bytes += timed.nbytes
            self.timed.append(timed)

    def ledger(self, request_ids: Iterable[str] | None = None) -> SharedLedger:
        """What was these requests'; of all, and the pads, where none is named. After ``end``, or between two steps."""
        assert self._first is not None, "it has not begun"
        period = seconds_per_cycle(self._first, self._last or read_clocks())
        ids = None if request_ids is None else frozenset(request_ids)
        return shared_ledger(self._meter, list(self.timed), ids, period, self.left_out)


def shared_ledger(
    meter: StepMeter,
    timed: Sequence[TimedStep],
    request_ids: frozenset[str] | None,
    period: float,
    left_out: int = 0,
) -> SharedLedger:
    """The ledger of steps. request_ids: whose share; None: all of it. period: seconds of a cycle."""
    own = [
        [piece for piece in each.seen.pieces if request_ids is None or piece.request_id in request_ids]
        for each in timed
    ]
    kept = [place for place, pieces in enumerate(own) if pieces]
    timed, own = [timed[place] for place in kept], [own[place] for place in kept]
    names, windows = meter.costs.names, meter.costs.windows
    works = [works_of_pieces(each.seen.pieces, each.seen.pads, windows) for each in timed]
    mine = works if request_ids is None else [works_of_pieces(pieces, 0, windows) for pieces in own]
    shares = _shares(meter, works, mine)  # [S, 1 + N]
    seconds = np.array([each.cycles for each in timed], np.float64).reshape(-1, 1 + len(names)) * period * shares
    costs = meter.costs(works)  # [S, N, fields]
    for place, each in enumerate(works):
        if each[windows[0]].outputs == 0:  # then the head is not read, either
            costs[place, [name in AFTER_LAYERS for name in names]] = 0.0
    bounds = _bounds(meter.limits, costs, [each[windows[0]] for each in works], names)
    rows = [SharedRow(HANDOVER, len(timed), float(seconds[:, 0].sum()), 0.0, 0.0, 0.0, 0.0, 0.0, {})]
    for place, name in enumerate(names):
        share = shares[:, 1 + place]
        fields = (costs[:, place] * share[:, None]).sum(axis=0).tolist()
        least = {limit: float((found[:, place] * share).sum()) for limit, found in bounds.items()}
        rows.append(
            SharedRow(
                name,
                meter.costs.calls[name] * len(timed),
                float(seconds[:, 1 + place].sum()),
                **dict(zip(FIELDS, fields, strict=True)),
                bounds={limit: value for limit, value in least.items() if value > 0},
            )
        )
    return SharedLedger(
        steps=len(timed),
        tokens=sum(each[windows[0]].tokens for each in mine),
        outputs=sum(each[windows[0]].outputs for each in mine),
        step_seconds=sum(each.seen.seconds for each in timed),
        rows=tuple(rows),
        left_out=left_out,
    )


def works_of_pieces(pieces: Sequence[SeenPiece], pads: int, windows: Sequence[int]) -> dict[int, StepWork]:
    """The work of a step, or of some of its pieces, for each window: as ``costs.step_work`` says of a batch.

    pads: rows that a static batch computes for nobody; what these attend is not counted.
    """
    tokens = sum(piece.num_tokens for piece in pieces) + pads
    outputs = sum(piece.num_outputs for piece in pieces)
    found = {}
    for window in windows:
        attended = cached = 0
        for piece in pieces:
            end = piece.start + piece.num_tokens
            first = max(0, piece.start + 1 - window) if window else 0
            cached += end - first
            attended += _triangle(end) - _triangle(piece.start)
            if window:  # what lies before the window
                attended -= _triangle(max(0, end - window)) - _triangle(max(0, piece.start - window))
        found[window] = StepWork(tokens, outputs, attended, cached)
    return found


def _triangle(count: int) -> int:
    """1 + 2 + … + count: pairs of ``count`` positions, each with those up to its own."""
    return count * (count + 1) // 2


def _shares(
    meter: StepMeter, works: Sequence[Mapping[int, StepWork]], mine: Sequence[Mapping[int, StepWork]]
) -> Doubles:
    """Of each step's handover and operations: [S, 1 + N]."""
    names, first = meter.costs.names, meter.costs.windows[0]

    def looks(each: Mapping[int, StepWork]) -> int:
        return sum(count * each[window].attended for window, count in meter.layers_of.items())

    shares = []
    for whole, own in zip(works, mine, strict=True):
        tokens = own[first].tokens / whole[first].tokens
        # Within a prompt no logits are wanted, and the operations behind the layers have nothing to do.
        outputs = own[first].outputs / whole[first].outputs if whole[first].outputs else tokens
        attention = looks(own) / looks(whole) if looks(whole) else tokens
        shares.append(
            [tokens, *(outputs if n in AFTER_LAYERS else attention if n == "attention" else tokens for n in names)]
        )
    return np.array(shares, np.float64).reshape(len(works), 1 + len(names))


def _bounds(
    limits: MachineLimits, costs: Doubles, works: Sequence[StepWork], names: Sequence[str]
) -> dict[str, Doubles]:
    """By the name of a limit: seconds [S, N] that it allows where it binds, as ``ledger.bound_of`` says, else 0."""
    memory = costs[..., 2:].sum(axis=-1) / limits.stream.best
    floats = costs[..., 1] / limits.float32.best
    rows = [[each.outputs if name in AFTER_LAYERS else each.tokens for name in names] for each in works]
    found = [[limits.of_products(count) for count in each] for each in rows]
    rate = np.array([[each.best for _, each in step] for step in found]).reshape(floats.shape)
    is_amx = np.array([[kind == "amx" for kind, _ in step] for step in found], bool).reshape(floats.shape)
    products = costs[..., 0] / rate
    greatest = np.maximum(np.maximum(memory, products), floats)
    of_memory = memory == greatest
    of_products = (products == greatest) & ~of_memory
    return {
        "memory": np.where(of_memory, memory, 0.0),
        "int8": np.where(of_products & ~is_amx, products, 0.0),
        "amx": np.where(of_products & is_amx, products, 0.0),
        "float32": np.where(~of_memory & ~of_products, floats, 0.0),
    }
