"""A process with a limit of memory: in a control group of its own where the machine lets us make one; and everywhere a
watchdog reads what it takes, and kills it when that is too much.

In: a command, bytes. Out: what it printed.
"""

import contextlib
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

INTERVAL = 0.01  # seconds between two readings
GROUPS = {  # where groups are made, and their file for the limit: versions 2 and 1
    Path("/sys/fs/cgroup"): "memory.max",
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
}


class KilledError(Exception):
    """The process took too much."""


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """A control group with this limit; None where none can be made that limits memory."""
    group = _make_group(limit)
    try:
        yield group
    finally:
        if group is not None:
            group.rmdir()


def _make_group(limit: int) -> Path | None:
    for root, name in GROUPS.items():
        group = root / f"cutaway-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / name).exists():  # the kernel puts it there; an ordinary folder has none
            (group / name).write_text(str(limit))
            return group
        group.rmdir()
    return None


def run_within(command: Sequence[str], limit: int, timeout: float) -> str:
    """The command's standard output; limit: resident bytes, of Python and all.

    Raises KilledError if it took more; AssertionError with its standard error if it failed.
    """
    end = time.monotonic() + timeout
    with (
        memory_group(limit) as group,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        subprocess.Popen([*_within(group), *command], stdout=out, stderr=err) as process,
    ):
        try:
            while process.poll() is None:
                taken = _resident(process.pid)
                if taken > limit:
                    raise KilledError(f"the process took {taken:,} bytes, and its limit is {limit:,}")
                assert time.monotonic() < end, f"the process has not ended within {timeout} s"
                time.sleep(INTERVAL)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode == -9:
            raise KilledError(f"the system ended the process, and its limit is {limit:,}")
        assert process.returncode == 0, err.read()
        return out.read()


def _within(group: Path | None) -> list[str]:
    """A command that enters the group and then becomes the one behind it."""
    return [] if group is None else ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]


def _resident(pid: int) -> int:
    """Bytes that the process takes now; 0 if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
