"""The wheel: what is in it, and that it answers when it is installed alone, in an empty environment."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import cutaway

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"cutaway-{cutaway.__version__}.dist-info"
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    inside = {name for name in names if not name.startswith(info)}
    assert inside == sources | {"cutaway/py.typed"}
    assert {f"{info}/METADATA", f"{info}/entry_points.txt", f"{info}/licenses/LICENSE"} <= names


def test_the_wheel_runs_in_an_empty_environment(wheel: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Installed with its dependencies only, run from elsewhere. The kernels' stamp is of their sources, so that the
    installed copy finds what this process's copy compiled."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    constraints = (ROOT / "constraints.txt").resolve().as_uri()
    install = [programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, env={**os.environ, "PIP_CONSTRAINT": constraints})
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*arguments: str) -> str:
        command = [programs / "cutaway", *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env=clean
        ).stdout

    assert run("--version") == f"cutaway {cutaway.__version__}\n"
    assert "smollm2" in run("pull")
    answer = run("run", "smollm2", "Say hello.", "--temperature", "0", "--max-tokens", "8")
    assert len(answer.split()) >= 2
