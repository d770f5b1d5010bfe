"""Each family and variant, on a small random model: the reference run against transformers in float32, the closed run
against the reference, operation by operation and whole, and what is the same bits whatever the way.

The fixture is made by ``oracles/make_families_fixture.py``.
"""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.engine.compile import step_arguments
from cutaway.formats.gguf import open_gguf
from cutaway.model.config import ModelConfig
from cutaway.model.families import FAMILIES
from cutaway.model.forward import forward_compiled, forward_timed, rebind
from cutaway.model.loader import LoadedModel, load_model
from cutaway.model.positions import Positions, Rope, learned, rotary, sinusoidal
from cutaway.model.records import Model
from cutaway.model.reference import load_reference
from cutaway.model.shapes import TAPS, Limits, dimensions, evaluate, taps_of
from cutaway.ops.arguments import make_argument
from cutaway.ops.cpu.clock import new_clocks
from cutaway.ops.kernel_cache import compilations
from support.bits import differing
from support.logprobs import closed_logprobs, mean_divergence, reference_logprobs
from support.rig import Part, Step, chunks, run_schedule
from support.shadow import exceeding, shadow_run
from support.tiny_families import CASES, CONTROLS, PROMPTS, SEEN_IDS, write_case

ORACLE = np.load(Path(__file__).parents[1] / "fixtures" / "families_reference.npz")
MOST_DIFFERENCE = 1e-4
"""Of a logprob to transformers', in nats. transformers computes in float32, which alone makes 1e-5."""
MOST_DIVERGENCE = 2e-3
"""KL(reference ‖ closed) in nats: int8 activations; a wrong bias, pair or window costs more than ten times as much."""
LONGEST = list(PROMPTS.values())[-1]


class Tiny(NamedTuple):
    name: str
    path: Path
    loaded: LoadedModel
    config: ModelConfig
    exact: Model


@pytest.fixture(scope="module", params=CASES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = write_case(tmp_path_factory.mktemp("tiny") / "tiny.gguf", request.param)
    with open_gguf(path) as gguf:
        return Tiny(request.param, path, load_model(gguf, threads=2), *load_reference(gguf))


def seen_logprobs(config: ModelConfig, record: Model) -> npt.NDArray[np.float64]:
    """What the fixture keeps: [T, V']."""
    rows = reference_logprobs(config, record, PROMPTS)
    return np.concatenate([rows[name] for name in PROMPTS])[:, SEEN_IDS]


def test_every_family_has_a_case() -> None:
    assert {case.architecture for case in CASES.values()} == set(FAMILIES)


def test_reference_is_what_transformers_computes(tiny: Tiny) -> None:
    theirs = ORACLE[f"{tiny.name}.logprobs"]
    made_from = str(ORACLE[f"{tiny.name}.sha256"])
    assert hashlib.sha256(tiny.path.read_bytes()).hexdigest() == made_from, "another file than the fixture's"
    difference = np.abs(seen_logprobs(tiny.config, tiny.exact) - theirs).max()
    print(f"{tiny.name}: {difference:.1e} nats")
    assert difference <= MOST_DIFFERENCE


@pytest.mark.parametrize("name", CONTROLS)
def test_a_changed_number_is_seen(tmp_path: Path, name: str) -> None:
    """The control: one number of the metadata, slightly wrong."""
    with open_gguf(write_case(tmp_path / "changed.gguf", name, **CONTROLS[name])) as gguf:
        difference = np.abs(seen_logprobs(*load_reference(gguf)) - ORACLE[f"{name}.logprobs"]).max()
    assert difference > 10 * MOST_DIFFERENCE, name


def test_closed_run_is_near_the_reference(tiny: Tiny) -> None:
    exact = reference_logprobs(tiny.config, tiny.exact, PROMPTS)
    divergence = mean_divergence(exact, closed_logprobs(tiny.loaded, PROMPTS))
    print(f"{tiny.name}: KL {divergence:.1e} nats")
    assert 1e-6 < divergence < MOST_DIVERGENCE


@pytest.mark.parametrize("data_type", ["f16", "f32"])
def test_every_operation(tiny: Tiny, data_type: str) -> None:
    errors = shadow_run(tiny.loaded, tiny.exact, data_type)
    assert exceeding(errors) == {}


@pytest.fixture(scope="module")
def whole(tiny: Tiny) -> Any:
    """The longest prompt in one step on one thread."""
    return run_schedule(tiny.loaded, [LONGEST], [[Part(0, 0, len(LONGEST))]])


SCHEDULES: dict[str, list[Step]] = {
    "one by one": chunks(0, len(LONGEST), 1),
    "in sevens": chunks(0, len(LONGEST), 7),
    "mixed": [[Part(0, 0, 61)], *([Part(0, t, t + 1)] for t in range(61, 70)), [Part(0, 70, len(LONGEST))]],
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_token_depends_on_nothing_but_its_sequence(tiny: Tiny, whole: Any, schedule: str, threads: int) -> None:
    logits = run_schedule(tiny.loaded, [LONGEST], SCHEDULES[schedule], threads=threads)
    assert set(logits) == set(whole)
    assert sum(differing(logits[place], whole[place]) for place in whole) == 0


def test_open_and_timed_are_closed(tiny: Tiny, whole: Any) -> None:
    """And every array has the shape that the table says; an operation that the model doesn't have changes nothing."""
    shapes: dict[str, tuple[int, ...]] = {}
    before: dict[str, Any] = {}
    absent = set(TAPS) - set(taps_of(tiny.config))

    def look(team: Any, name: str, layer: int, array: npt.NDArray[Any]) -> None:
        shapes[name] = array.shape
        if name in absent - {"rope_angles"}:
            assert differing(array, before["array"]) == 0, name
        if array.dtype == np.float32:
            before["array"] = array.copy()

    step = [[Part(0, 0, len(LONGEST))]]
    opened = run_schedule(tiny.loaded, [LONGEST], step, forward=rebind({"tap": look}))
    count = len(LONGEST)
    sizes = dimensions(tiny.config, Limits(count, count, 1, count, 1))
    for name, shape in TAPS.items():
        if not name.endswith("_input"):
            assert shapes[name] == tuple(evaluate(entry, sizes) for entry in shape), name
    clocks = new_clocks(2, len(TAPS) * 99)
    timed = run_schedule(tiny.loaded, [LONGEST], step, forward=forward_timed, threads=2, notes=clocks)
    for other in (opened, timed):
        assert sum(differing(other[place], whole[place]) for place in whole) == 0


def test_one_compilation_serves_every_family(tiny: Tiny) -> None:
    """Its arguments have the types of those compiled ahead; and in fact nothing is compiled for it."""
    forward_compiled.prepare(*step_arguments())  # type: ignore[attr-defined]
    types = []
    run_schedule(
        tiny.loaded,
        [[1, 2, 3]],
        [[Part(0, 0, 3)]],
        forward=lambda *arguments: types.append(tuple(make_argument(argument).type for argument in arguments)),
    )
    assert types == [tuple(make_argument(argument).type for argument in step_arguments())]
    compiled: list[str] = []
    with compilations(compiled.append):
        run_schedule(tiny.loaded, [[1, 2, 3]], [[Part(0, 0, 3)]])
    assert compiled == []
    assert len(forward_compiled.signatures) == 1  # type: ignore[attr-defined]


# Positions as pieces


def pieces(config: ModelConfig) -> dict[str, Positions]:
    """Each kind of positions, for a model of this width and these heads."""
    rows = np.random.default_rng(0).standard_normal((128, config.width)).astype(np.float32)
    plain, yarn = Rope(1e4, config.head_dim), Rope(1e4, config.head_dim, "yarn", {"factor": 4.0, "original": 32.0})
    return {
        "none": rotary([], config.width),
        "learned": learned(rows),
        "sinusoidal": sinusoidal(128, config.width),
        "rotary": rotary([plain], config.width),
        "rotary, yarn": rotary([yarn], config.width),
    }


def test_positions_are_interchangeable(tmp_path: Path) -> None:
    """One model with each of them: the record's tables are all that changes; closed is near the reference, and no two
    give the same.
    """
    with open_gguf(write_case(tmp_path / "tiny.gguf", "qwen3")) as gguf:
        loaded, (config, exact) = load_model(gguf, threads=2), load_reference(gguf)
    prompts, seen = {"prompt": LONGEST}, []
    for positions in pieces(config).values():
        rope = (Rope(1e4, config.head_dim),) if len(positions.magnitudes) else ()
        changed = dataclasses.replace(config, ropes=rope)
        tables = {
            "position_rows": positions.rows,
            "inverse_frequencies": positions.inverse_frequencies,
            "magnitudes": positions.magnitudes,
            "rotary_dim": changed.rotary_dim,
            "rope_table": np.full(config.num_layers, len(rope) - 1, np.int32),
        }
        ours = LoadedModel(changed, loaded.record._replace(**tables), loaded.arena, loaded.formats)
        theirs = reference_logprobs(changed, exact._replace(**tables), prompts)
        assert mean_divergence(theirs, closed_logprobs(ours, prompts)) < MOST_DIVERGENCE
        assert all(np.abs(theirs["prompt"] - other).max() > 10 * MOST_DIFFERENCE for other in seen)
        seen.append(theirs["prompt"])
