"""Another engine in a process of its own: the end that asks.

In: a command that serves an engine (``llama_cpp_process.serve``), then requests. Out: when tokens arrived, the peak of
the process's memory. While nothing is asked, the process waits on a pipe: its threads and memory disturb nobody's.
"""

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutaway.audit import llama_cpp_process
from cutaway.audit.llama_cpp_process import Arrivals, CannotRunError, Prompts


class PeerProcess:
    """An engine's process. ``close`` ends it, as does leaving it as a context manager."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start it, and wait until its model is loaded. Raises CannotRunError, with the reason, where it can't be."""
        self.name = name
        self.peak_bytes: int | None = None  # as of the last answer
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        try:
            self.info: dict[str, str] = self._answer()["info"]
        except BaseException:
            self.close()
            raise

    def measure(self, prompts: Prompts, new_tokens: int) -> Arrivals:
        """One request. Raises CannotRunError where the engine can't do it, or its process has ended."""
        if self._process is None or self._process.stdin is None:
            raise CannotRunError("its process has ended")
        with contextlib.suppress(BrokenPipeError):  # then there will be no answer, either
            print(json.dumps({"prompts": prompts, "new_tokens": new_tokens}), file=self._process.stdin, flush=True)
        said = self._answer()
        self.peak_bytes = said["peak_bytes"]
        return [(seconds, count) for seconds, count in said["arrivals"]]

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self.close()
            raise CannotRunError(f"its process ended with code {code}")
        said: dict[str, Any] = json.loads(line)
        if "cannot" in said:
            raise CannotRunError(said["cannot"])
        return said

    def close(self) -> None:
        """End the process; its standard input ends, on which it goes."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # it is gone
                        pipe.close()
            process.wait()

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def llama_cpp_command(python: Path, model: Path, threads: int) -> list[str]:
    """The command that serves llama.cpp in this interpreter."""
    return [str(python), str(Path(llama_cpp_process.__file__).resolve()), str(model), str(threads)]
