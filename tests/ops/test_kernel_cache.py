"""The cache of compiled kernels: found again, stamped, repaired, shared by processes, or done without.

Each test has a cache of its own, into which a child process compiles three small kernels.
"""

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import cutaway
from cutaway.ops import kernel_cache, kernel_files
from cutaway.ops.cpu.team import take
from support.machines import ROOT, avx2_environment, has_avx512, subprocess_environment
from support.patience import SECONDS

CHILD = Path(__file__).with_name("compile_in_child.py")
RIGHT = hashlib.sha256(np.arange(1, 33, dtype=np.float32).tobytes()).hexdigest()
"""Of what the child adds up: 0 … 31, and 1."""


def start(cache: Path, **options: Any) -> "subprocess.Popen[str]":
    environment = {**subprocess_environment(), "CUTAWAY_CACHE": str(cache), **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, str(CHILD)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(child: "subprocess.Popen[str]") -> dict[str, Any]:
    out, errors = child.communicate(timeout=SECONDS)
    assert child.returncode == 0, errors
    report: dict[str, Any] = json.loads(out)
    assert report["sha256"] == RIGHT
    assert report["addresses"]
    return report


def compile_in_child(cache: Path, **options: Any) -> dict[str, Any]:
    """A child's report; its results were right."""
    return finish(start(cache, **options))


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A cache that holds the child's kernels."""
    assert compile_in_child(tmp_path / "cache")["compiled"] >= 3
    return tmp_path / "cache"


def test_a_second_process_compiles_nothing(filled: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(filled)}
    assert len(before) >= 3
    report = compile_in_child(filled)
    assert report["compiled"] == 0
    assert not report["compiler"]  # it isn't even loaded
    assert report["warnings"] == []
    assert {path: path.stat().st_mtime_ns for path in files(filled)} == before


def test_the_same_code_in_another_folder_compiles_nothing(filled: Path, tmp_path: Path) -> None:
    """An installation beside a checkout, say."""
    package = Path(cutaway.__file__).parent
    shutil.copytree(package, tmp_path / "elsewhere" / "cutaway", ignore=shutil.ignore_patterns("__pycache__"))
    report = compile_in_child(filled, env={"PYTHONPATH": str(tmp_path / "elsewhere")})
    assert report["compiled"] == 0
    assert Path(report["package"]) == tmp_path / "elsewhere" / "cutaway"


@pytest.mark.parametrize("end", ["code", "part"])
@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "foreign"])
def test_a_damaged_file_is_compiled_anew_and_replaced(filled: Path, damage: str, end: str) -> None:
    victim = max(filled.rglob(f"*.{end}"), key=lambda path: path.stat().st_size)
    if end == "part":  # which is read where a function that contains it is compiled
        for path in filled.rglob(f"{victim.name.partition('-')[0]}*.code"):
            path.unlink()
    content = victim.read_bytes()
    spoiled = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "flipped": content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
        "foreign": b"not a kernel" * 99,
    }[damage]
    victim.write_bytes(spoiled)
    assert compile_in_child(filled)["compiled"] >= 1
    assert victim.read_bytes() != spoiled
    assert compile_in_child(filled)["compiled"] == 0


def test_several_processes_at_once(tmp_path: Path) -> None:
    """All are right, whoever writes last; nothing is left half-written; the next one compiles nothing."""
    cache = tmp_path / "cache"
    for child in [start(cache) for _ in range(4)]:
        assert finish(child)["warnings"] == []
    assert [path.name for path in files(cache) if path.name.startswith(".")] == []
    assert compile_in_child(cache)["compiled"] == 0


CAPABILITY_DROP = 24  # prctl's PR_CAPBSET_DROP
DAC_OVERRIDE = 1  # the capability by which root writes where the mode forbids it


def bound_by_modes() -> None:
    """In a child before it starts: root, too, may only write where a folder's mode allows it."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(CAPABILITY_DROP, DAC_OVERRIDE, 0, 0, 0) != 0:
        raise OSError("can't drop the capability to override modes: run the tests as an ordinary user")


def test_a_cache_that_can_only_be_read_is_used(filled: Path) -> None:
    """As in an image whose kernels were compiled when it was built."""
    folders = [path for path in [filled, *filled.rglob("*")] if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        report = compile_in_child(filled, preexec_fn=bound_by_modes)
        assert report["compiled"] == 0
        assert Path(report["folder"]).is_relative_to(filled)
        missing = files(filled)[0]
        folders[-1].chmod(0o755)
        missing.unlink()
        folders[-1].chmod(0o555)
        assert compile_in_child(filled, preexec_fn=bound_by_modes)["compiled"] >= 1  # in memory, every time
        assert not missing.exists()
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_no_cache_at_all_is_a_warning(tmp_path: Path) -> None:
    """Where the folder can't be made, kernels are compiled each time, and the user is told what to set."""
    blocked = tmp_path / "file"
    blocked.write_text("a file, not a folder")
    report = compile_in_child(blocked, env={"TMPDIR": str(tmp_path)})
    assert report["compiled"] >= 3
    assert len(report["warnings"]) == 1
    assert "can't be kept in" in report["warnings"][0]
    assert "Set CUTAWAY_CACHE to a folder that can be written" in report["warnings"][0]
    assert blocked.read_text() == "a file, not a folder"


def test_folders_long_unused_are_removed(filled: Path) -> None:
    """Those of older stamps, by the date of their last use; a recent one stays, and all that is not ours."""
    kernels = filled / "kernels"
    old, recent = kernels / ("0" * 20), kernels / ("1" * 20)
    foreign, mixed = kernels / "my_cuda_kernels", kernels / ("2" * 20)
    for folder, days in ((old, 31), (recent, 29), (foreign, 60), (mixed, 60)):
        folder.mkdir()
        (folder / "a.code").touch()
        if folder is mixed:
            (folder / "thesis.txt").touch()
        then = time.time() - days * 86400
        os.utime(folder, (then, then))
    (old / ".a.code.123").touch()  # half-written
    more = [kernels / f"{n:020}" for n in range(30, 40)]  # the folder that stays doesn't end the search
    for folder in more:
        folder.mkdir()
        os.utime(folder, (0, 0))
    os.utime(old, (0, 0))
    compile_in_child(filled)
    assert not any(folder.exists() for folder in more)
    assert not old.exists()
    assert (recent / "a.code").exists()
    assert (foreign / "a.code").exists()
    assert (mixed / "thesis.txt").exists()


STAMPS = """
import json, sys
from pathlib import Path
from cutaway.ops import kernel_files
package = Path(kernel_files.__file__).parent.parent
stamp = kernel_files.stamp.__wrapped__
before, changed = stamp(), {}
for source in sorted(package.rglob("*.py")):
    text = source.read_bytes()
    source.write_bytes(text + b"# touched\\n")
    changed[source.relative_to(package).as_posix()] = stamp() != before
    source.write_bytes(text)
assert stamp() == before
(package / "ops" / "new_kernel.py").write_text("")
print(json.dumps({"stamp": before, "changed": changed, "new": stamp() != before}))
"""


def stamps_of_a_copy(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    package = folder / "copy" / "cutaway"
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(ROOT / "src" / "cutaway", package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**environment, "PYTHONPATH": str(package.parent)}
    result = subprocess.run([sys.executable, "-c", STAMPS], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_the_stamp_covers_every_kernel_source(tmp_path: Path) -> None:
    """A change of any module that ends up in compiled code, and a new one; none of any other."""
    answer = stamps_of_a_copy(tmp_path, subprocess_environment())
    assert answer["new"]
    compiled = {path for path, changed in answer["changed"].items() if changed}
    decorated = {
        path.relative_to(ROOT / "src" / "cutaway").as_posix()
        for path in (ROOT / "src" / "cutaway").rglob("*.py")
        if any(sign in path.read_text() for sign in ("@jit", "jit(", "@kernel", "kernel(", "@intrinsic"))
    }
    engine = {path for path in decorated if path.startswith(("ops/", "model/", "sampling/"))}
    assert engine <= compiled
    assert {"model/records.py", "ops/simd/rows.py", "ops/cpu/arrays.py"} <= compiled
    assert not {path for path in compiled if path.startswith(("cli/", "hub/", "tokenizer/", "audit/", "formats/"))}


@pytest.mark.skipif(not has_avx512(), reason="this processor has one lowering, so both stamps would be the same")
def test_the_stamp_covers_the_processor(tmp_path: Path) -> None:
    ours = stamps_of_a_copy(tmp_path, subprocess_environment())["stamp"]
    assert stamps_of_a_copy(tmp_path, subprocess_environment())["stamp"] == ours
    assert stamps_of_a_copy(tmp_path, avx2_environment())["stamp"] != ours


@pytest.mark.parametrize("name", ["NUMBA_OPT", "NUMBA_SLP_VECTORIZE", "NUMBA_BOUNDSCHECK", "NUMBA_DEBUGINFO"])
def test_the_stamp_covers_what_numba_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    before = kernel_files.stamp.__wrapped__()
    monkeypatch.setenv(name, "1")
    assert kernel_files.stamp.__wrapped__() != before


def test_what_compiled_code_alone_calls_says_so() -> None:
    """Without a way in from Python, a call would jump to address 0."""
    with pytest.raises(TypeError, match="take is for compiled code alone: call it from a function that is compiled"):
        take(None, 1)  # type: ignore[arg-type]


def test_two_threads_that_ask_for_a_kernel_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first one's address would lead to code that is gone."""
    made: list[int] = []

    def slow(*arguments: Any) -> tuple[list[str], bytes]:
        made.append(0)
        time.sleep(0.05)
        return [], _content(*arguments)[1]

    _content = kernel_cache._content
    monkeypatch.setattr(kernel_cache, "_content", slow)

    @kernel_cache.kernel
    def nothing(x: int) -> None:
        return

    with ThreadPoolExecutor(4) as pool:
        addresses = set(pool.map(lambda _: nothing.address, range(4)))
    assert (len(addresses), len(made)) == (1, 1)


def test_what_is_compiled_here_is_kept_though_no_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each model that is opened would begin another process, where the cache can't be written."""
    monkeypatch.setattr(kernel_files, "save", lambda file, data: None)

    @kernel_cache.root_jit
    def twice(x: int) -> int:
        return 2 * x

    assert not cast(kernel_cache.Compiled, twice).is_kept(1)
    assert twice(1) == 2
    assert cast(kernel_cache.Compiled, twice).is_kept(1)
    assert not cast(kernel_cache.Compiled, twice).is_kept(1.0)


def test_functions_that_differ_in_a_number_alone_are_two() -> None:
    """As a script's function does that was changed since it last ran: the byte code of both is the same."""
    found = []
    for body in ("2 * x", "3 * x", "2.0 * x", "np.ceil(x)", "np.floor(x)"):
        names: dict[str, Any] = {"np": np, "__name__": __name__}
        exec(f"def changed(x):\n    return {body}", names)
        found.append(kernel_cache.root_jit(names["changed"])(1.5))
    assert found == [3.0, 4.5, 3.0, 2.0, 1.0]
