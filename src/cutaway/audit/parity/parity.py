"""The parity of a run: how far the engine is from its definition, operation by operation and in the end.

In: a runner, the model by definition, ids. Out: a ``Parity``: for each operation its error on its own inputs beside its
budget, and the distance from a whole run in float64; the divergence of the distributions at the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.layer_progress import Told, nobody, telling
from cutaway.audit.parity.budgets import budget_of, root_mean_square
from cutaway.audit.parity.companion import Companion
from cutaway.audit.parity.independent import IndependentSum
from cutaway.audit.parity.shadow import OUTPUT, Call, Shadow
from cutaway.audit.parity.streams import Place, Streams, relative_rows
from cutaway.engine.prompts import check_prompt
from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.memory.kv_cache import allocate_kv_pool
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import forward_compiled, rebind
from cutaway.model.records import Model
from cutaway.model.shapes import taps_of
from cutaway.ops.cpu.arrays import Batch
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.ops.cpu.threads import ThreadTeam, float_environment

LONGEST_TEXT: Final = 1024  # tokens
LEAST_TEXT: Final = 2  # so that one is predicted
CHUNK: Final = 128  # tokens of a step: their logits in float64 are kept for a moment

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OperationParity:
    """One operation of one layer, over all tokens. Errors are relative."""

    name: str  # of the tap
    layer: int  # -1 outside the layers
    rms: float  # on its own inputs: root mean square over the tokens
    expected: float  # that, derived
    worst: float  # of any output, relative to what ``budgets`` says
    limit: float  # the budget of ``worst``
    distance: float  # from the run in float64: root mean square over the tokens
    distance_expected: float | None  # of the residual stream, if errors only added up

    @property
    def within(self) -> bool:
        """Whether it keeps to its budget; what is no number doesn't."""
        return self.worst <= self.limit


@dataclass(frozen=True)
class EndParity:
    """The distributions over the vocabulary, float64's p and the engine's q, at every position."""

    kl_mean: float  # nats, KL(p ‖ q)
    kl_greatest: float
    kl_greatest_at: int  # the position
    kl_expected: float  # if errors only added up
    same_top: float  # share of positions with the same likeliest token
    perplexity_reference: float  # of the text
    perplexity_engine: float


@dataclass(frozen=True)
class Parity:
    """A text through both."""

    model: str
    tokens: int
    kv_dtype: str
    same_bits: bool  # the closed run's logits are the open one's, to the bit
    operations: tuple[OperationParity, ...]  # in the forward's order
    end: EndParity

    @property
    def first_over(self) -> OperationParity | None:
        """The first operation that breaks its budget."""
        return next((each for each in self.operations if not each.within), None)

    def residual(self) -> list[OperationParity]:
        """The residual stream: embedded, then after each layer."""
        return [each for each in self.operations if each.name in ("embed", "ffn_residual")]


class _Errors:
    """Of one operation, growing from chunk to chunk."""

    def __init__(self) -> None:
        self.squares: list[Doubles] = []  # of each token's relative error
        self.expected: list[Doubles] = []  # the same of the derived ones
        self.worst, self.limit = 0.0, 0.0
        self.distances: list[Doubles] = []
        self.distances_expected: list[Doubles] = []

    def add_worst(self, worst: float, limit: float) -> None:
        """Keep the call that is nearest to its limit, or farthest beyond it."""
        if not self.squares or not _share(worst, limit) <= _share(self.worst, self.limit):
            self.worst, self.limit = worst, limit


def _share(worst: float, limit: float) -> float:
    return worst / limit if limit > 0 else (0.0 if worst == 0 else math.inf)


class _Comparison:
    """Compares each operation: hears of it from the shadow, and of its name from the tap behind it."""

    def __init__(self, companion: Companion, present: frozenset[str], data_type: str, streams: Streams | None) -> None:
        self.found: dict[Place, _Errors] = {}
        self.logits: list[Doubles] = []  # of the companion
        self._companion, self._present, self._data_type = companion, present, data_type
        self._streams = streams
        self._pending: Call | None = None
        self._sum = IndependentSum()

    def call(self, call: Call) -> None:
        """From the shadow."""
        self._pending = call

    def tap(self, team: Any, name: str, layer: int, array: Any) -> None:
        """From the forward."""
        call = self._pending
        assert call is not None
        own = self._companion.apply(call)
        if name == "logits_softcap":  # the last one, which every model's run passes
            self.logits.append(own[OUTPUT["softcap"]])
        if self._streams is not None:
            self._streams.add((name, layer), _reference_of(call, own), call.got)
        if name not in self._present:
            return
        reference = _reference_of(call, own)
        columns = _columns(call)
        got, exact, reference = (_flat(each)[:, :columns] for each in (call.got, call.exact, reference))
        errors = self.found.setdefault((name, layer), _Errors())
        budget = budget_of(call, self._data_type)
        difference = np.abs(call.got - call.exact)
        with np.errstate(divide="ignore"):  # beyond any budget where there should be nothing
            scaled = np.divide(difference, budget.scale, out=np.zeros_like(difference), where=difference != 0)
        errors.add_worst(float(scaled.max(initial=0.0)), budget.limit)
        relative = relative_rows(got, exact)
        errors.squares.append(relative**2)
        errors.expected.append(np.full(len(relative), budget.expected**2))
        errors.distances.append(relative_rows(got, reference) ** 2)
        expected = self._sum.after(name, relative, exact)
        if expected is not None:
            errors.distances_expected.append(expected**2)


def _flat(array: npt.NDArray[Any]) -> Doubles:
    flat: Doubles = array.reshape(len(array), -1).astype(np.float64)
    return flat


def _columns(call: Call) -> int | None:
    """Behind the outputs of a product there may be columns of padding."""
    return int(call.arguments[0]["rows"].sum()) if call.operation == "matmul" else None


def _reference_of(call: Call, own: tuple[Any, ...]) -> Doubles:
    """What the companion has where the engine has ``call.got``."""
    if call.operation == "quantize_rows":
        x: Doubles = own[0]
        return x
    if call.operation == "kv_write":
        qkv, _, _, _, H, Hkv, Dh = own
        heads: Doubles = qkv.reshape(len(qkv), H + 2 * Hkv, Dh)[:, H:]
        return heads
    output: Doubles = own[OUTPUT[call.operation]]
    return output


def measure_parity(
    runner: ModelRunner,
    exact: Model,
    ids: Sequence[int],
    *,
    kv_dtype: str = "f16",
    streams: Streams | None = None,
    told: Told = nobody,
) -> Parity:
    """Run the ids both ways. exact: the model by definition, from ``model.reference.load_reference``; streams: is given
    both residual streams; told: how far it is, at each layer.

    The runner's own pool and workspace are left alone. Raises InvalidRequestError for a text that is too long or too
    short, or has ids that the vocabulary hasn't.
    """
    check_prompt(ids, runner.context, runner.vocab_size)
    if not LEAST_TEXT <= len(ids) <= LONGEST_TEXT:
        raise InvalidRequestError(
            f"the text has {len(ids)} tokens; parity is measured on {LEAST_TEXT} to {LONGEST_TEXT}. Give a "
            f"{'longer' if len(ids) < LEAST_TEXT else 'shorter'} one.",
            "text",
        )
    config = runner.config
    chunk = min(CHUNK, len(ids))
    sizes = {**runner.dimensions, "T": chunk, "O": chunk}
    work = allocate_workspace(sizes)
    num_pages = -(-len(ids) // SUBTILE)
    pool = allocate_kv_pool(config, num_pages, SUBTILE, kv_dtype)
    companion = Companion(config, sizes, work, num_pages, SUBTILE)
    comparison = _Comparison(companion, frozenset(taps_of(config)), kv_dtype, streams)
    shadow = Shadow(exact, kv_dtype, comparison.call)
    shadow.pool = pool
    alone = ThreadTeam(1)
    end = _End(ids)
    same_bits = True
    for start in range(0, len(ids), chunk):
        tokens = ids[start : start + chunk]
        batch: Batch = make_batch([Piece(start, tokens, list(range(num_pages)), outputs=len(tokens))])
        runner.team.run(forward_compiled, runner.loaded.record, batch, pool.record, work)
        closed = np.array(work.logits[: len(tokens), : runner.vocab_size])
        tap = telling(comparison.tap, told, start, start + len(tokens), len(ids), config.num_layers)
        forward = rebind({**shadow.table(), "tap": tap}, "forward_parity")
        with float_environment():
            forward(alone.members()[0], runner.loaded.record, batch, pool.record, work)
        opened = work.logits[: len(tokens), : runner.vocab_size]
        same_bits = same_bits and bool((closed.view(np.uint32) == opened.view(np.uint32)).all())
        last = comparison.found["logits", -1].distances_expected[-1]
        end.add(start, comparison.logits.pop()[:, : runner.vocab_size], opened, np.sqrt(last))
    return Parity(
        model=config.name,
        tokens=len(ids),
        kv_dtype=kv_dtype,
        same_bits=same_bits,
        operations=tuple(_operation(place, errors) for place, errors in comparison.found.items()),
        end=end.parity(),
    )


def _operation(place: Place, errors: _Errors) -> OperationParity:
    def mean(squares: list[Doubles]) -> float:
        return math.sqrt(float(np.concatenate(squares).mean()))

    return OperationParity(
        name=place[0],
        layer=place[1],
        rms=mean(errors.squares),
        expected=mean(errors.expected),
        worst=errors.worst,
        limit=errors.limit,
        distance=mean(errors.distances),
        distance_expected=mean(errors.distances_expected) if errors.distances_expected else None,
    )


class _End:
    """What becomes of the text's probabilities."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self._kl: list[float] = []
        self._kl_expected: list[float] = []
        self._same: list[bool] = []
        self._logprobs: list[tuple[float, float]] = []  # of the next token, float64's and the engine's

    def add(self, start: int, reference: Doubles, engine: npt.NDArray[np.float32], expected: Doubles) -> None:
        """Logits [T, V] of a chunk that begins at ``start``; expected: the relative error of each row."""
        for row, (exact, got) in enumerate(zip(reference, engine.astype(np.float64), strict=True)):
            p, q = log_softmax(exact), log_softmax(got)
            probabilities = np.exp(p)
            self._kl.append(float((probabilities * (p - q)).sum()))
            deviation = float(expected[row]) * root_mean_square(exact)
            self._kl_expected.append(0.5 * deviation**2 * (1 - float((probabilities**2).sum())))
            self._same.append(int(exact.argmax()) == int(got.argmax()))
            if start + row + 1 < len(self._ids):
                following = self._ids[start + row + 1]
                self._logprobs.append((float(p[following]), float(q[following])))

    def parity(self) -> EndParity:
        """Of all chunks."""
        reference, engine = (math.exp(-sum(each) / len(each)) for each in zip(*self._logprobs, strict=True))
        return EndParity(
            kl_mean=sum(self._kl) / len(self._kl),
            kl_greatest=max(self._kl),
            kl_greatest_at=int(np.argmax(self._kl)),
            kl_expected=sum(self._kl_expected) / len(self._kl_expected),
            same_top=sum(self._same) / len(self._same),
            perplexity_reference=reference,
            perplexity_engine=engine,
        )


def log_softmax(logits: Doubles) -> Doubles:
    """Over [V], in float64."""
    shifted = logits - logits.max()
    result: Doubles = shifted - np.log(np.exp(shifted).sum())
    return result
