"""How a process comes to AMX's registers on this system, for ``test_lowering``; as JSON, what happened at each step.

In: nothing. Out: whether the system lets this process use the registers before and after the package is imported, and
what its threads and children may do. Children are forked, so that each starts where this process is.
"""

import ctypes
import errno
import importlib
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

ARCH_PRCTL, GET_PERMISSIONS, TILE_DATA = 158, 0x1022, 18
LIBC = ctypes.CDLL(None, use_errno=True)


def permitted() -> bool:
    """Whether the system lets this process use AMX's registers."""
    features = ctypes.c_uint64()
    assert LIBC.syscall(ARCH_PRCTL, GET_PERMISSIONS, ctypes.byref(features)) == 0
    return bool(features.value >> TILE_DATA & 1)


def in_fork(function: Callable[[], Any]) -> Any:
    """What the function gives in a forked child, or minus the signal that killed it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(answer) if code == 0 else code


def deny(number: int) -> None:
    """From now on the system refuses arch_prctl with this error, as a container's filter may."""
    load, jump_if_equal, answer = 0x20, 0x15, 0x06  # of the system call's number; to the next but n; BPF's codes
    allow, fail = 0x7FFF0000, 0x00050000
    steps = [(load, 0, 0, 0), (jump_if_equal, 0, 1, ARCH_PRCTL), (answer, 0, 0, fail | number), (answer, 0, 0, allow)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    table = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program)))
    no_new_privileges, set_filter, filter_mode = 38, 22, 2
    assert LIBC.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert LIBC.prctl(set_filter, filter_mode, table, 0, 0) == 0
    assert LIBC.syscall(ARCH_PRCTL, GET_PERMISSIONS, None) == -1
    assert ctypes.get_errno() == number


def shrink_signal_stack() -> None:
    """A stack for signals on which AMX's registers have no room: the system refuses while there is one."""
    memory = ctypes.create_string_buffer(6000)
    shrink_signal_stack.kept = memory  # type: ignore[attr-defined]
    stack = ctypes.create_string_buffer(struct.pack("QixxxxQ", ctypes.addressof(memory), 0, len(memory)))
    assert LIBC.sigaltstack(stack, None) == 0


def lowering_after(preparation: Callable[[], None]) -> str:
    """The lowering of a process to which this happened before it imported the package."""
    preparation()
    from cutaway.ops.simd.lowering import LOWERING

    return LOWERING


def product() -> str:
    """Whether a product of bytes in this thread is right."""
    import numba

    from cutaway.ops import simd

    @numba.njit
    def run(a: int, b: int, out: int) -> None:
        simd.open_matrices(16)
        simd.load_matrix(4, a, 16)
        simd.load_matrix(6, b, 64)
        simd.multiply_matrices(0, 4, 6)
        simd.store_matrix(0, out, 64)
        simd.close_matrices()

    a, b, out = (ctypes.create_string_buffer(content) for content in (b"\x05" * 256, b"\xfd" * 256, bytes(1024)))
    run(*(ctypes.addressof(each) for each in (a, b, out)))
    return "right" if out.raw[:1024] == struct.pack("i", 16 * 5 * -3) * 256 else "wrong"


def use_unopened() -> None:
    """A product without registers that are open."""
    import numba

    from cutaway.ops import simd

    @numba.njit
    def run() -> None:
        simd.multiply_matrices(0, 4, 6)

    run()


def main() -> None:
    report: dict[str, Any] = {}
    for name in ("EPERM", "ENOSYS"):
        number = getattr(errno, name)
        report[f"refused with {name}"] = in_fork(lambda number=number: lowering_after(lambda: deny(number)))
    report["a small stack for signals"] = in_fork(lambda: lowering_after(shrink_signal_stack))

    report["before"] = permitted()
    asked = threading.Event()

    def wait_and_multiply() -> None:
        asked.wait()
        report["older thread"] = product()

    older = threading.Thread(target=wait_and_multiply)
    older.start()
    importlib.import_module("cutaway.ops.kernel_cache")  # without it nothing is compiled
    report["after"] = permitted()
    asked.set()
    older.join()
    report["fork"] = in_fork(lambda: [permitted(), product()])
    report["not opened"] = in_fork(use_unopened)
    report["closed"] = in_fork(lambda: [product(), use_unopened()])
    here = os.path.dirname(__file__)
    alone = f"import sys; sys.path.insert(0, {here!r}); import ask_in_child; print(ask_in_child.permitted())"
    answer = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True)
    report["another program"] = answer.stdout.strip() == "True"
    print(json.dumps(report))


if __name__ == "__main__":
    main()
