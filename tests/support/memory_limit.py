"""A process with a limit of memory: a watchdog reads what it takes, and kills it when that is too much.

In: a command, bytes. Out: what it printed. A cgroup would be stricter; to make one takes rights that tests seldom have.
"""

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

INTERVAL = 0.01  # seconds between two readings


class KilledError(Exception):
    """The process took too much."""


def run_within(command: Sequence[str], limit: int, timeout: float) -> str:
    """The command's standard output; limit: resident bytes, of Python and all.

    Raises KilledError if it took more; AssertionError with its standard error if it failed.
    """
    end = time.monotonic() + timeout
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        subprocess.Popen(command, stdout=out, stderr=err) as process,
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
        out.seek(0)
        err.seek(0)
        assert process.returncode == 0, err.read()
        return out.read()


def _resident(pid: int) -> int:
    """Bytes that the process takes now; 0 if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
