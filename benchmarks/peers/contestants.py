"""Who takes part: an engine with a model file, each to be started in a process of its own.

In: the names asked for, the model, other files for some of the peers. Out: contestants, Cutaway first.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutaway.audit.peer_process import PeerProcess
from peers.engines import ENGINES, OURS, family

BENCHMARKS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Contestant:
    """One engine on one file."""

    name: str  # as it is shown
    engine: str
    model: Path
    python: Path

    @property
    def is_ours(self) -> bool:
        """Whether this is Cutaway."""
        return self.engine == OURS

    def start(self, threads: int, positions: int) -> PeerProcess:
        """Its process, the model loaded. Raises CannotRunError."""
        command = [str(self.python), "-m", "peers.worker", self.engine, str(self.model), str(threads), str(positions)]
        path = os.pathsep.join([str(BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")])])
        return PeerProcess(self.name, command, {**os.environ, "PYTHONPATH": path})


def contestants(
    model: Path, engines: Sequence[str], peer_python: Path, peer_models: Sequence[tuple[str, Path]]
) -> list[Contestant]:
    """Cutaway and these engines on the model; then each engine of a family of ``peer_models`` on that file."""
    found = [Contestant(ENGINES[OURS].title, OURS, model, Path(sys.executable))]
    for name in engines:
        if name != OURS:
            found.append(Contestant(ENGINES[name].title, name, model, peer_python))
    for asked, other in peer_models:
        for name in engines:
            if asked in (name, family(name)):
                found.append(Contestant(f"{ENGINES[name].title}, {other.name}", name, other, peer_python))
    return found


def chosen(names: Sequence[str] | None) -> list[str]:
    """The engines of these names or families, all without any. Raises ValueError for an unknown one."""
    if names is None:
        return list(ENGINES)
    for name in names:
        if not any(name in (each, family(each)) for each in ENGINES):
            raise ValueError(f"there is no engine {name}; there are {', '.join(ENGINES)}")
    return [each for each in ENGINES if each in names or family(each) in names]


def versions(processes: Mapping[str, PeerProcess]) -> dict[str, dict[str, str]]:
    """Of those that started."""
    return {name: process.info for name, process in processes.items()}
