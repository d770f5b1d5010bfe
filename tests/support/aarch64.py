"""Compiles kernels for an aarch64 processor on any machine, in a process of its own: nothing of it can be run here.

In: the processor's name as LLVM spells it, and names of tile formats (arguments). Out, as JSON: the lowering that was
chosen and, for each function, the instructions that it became. Numba does all that it does on such a machine, up to
the machine code; the parts that would load the code into this process are taken out.
"""

import inspect
import json
import os
import platform
import re
import sys
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

TRIPLE = "aarch64-unknown-linux-gnu"
INSTRUCTION = re.compile(r"^\t([a-z][a-z0-9.]*)(?:\t(.*))?$")


def become(processor: str) -> None:
    """Make this process take its processor for another; before Numba is imported."""
    platform.machine = lambda: "aarch64"
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_default_triple = llvm.get_process_triple = lambda: TRIPLE
    llvm.Target.from_default_triple = classmethod(lambda target: target.from_triple(TRIPLE))
    os.environ.update(NUMBA_CPU_NAME=processor, NUMBA_CPU_FEATURES="")
    import numba
    from numba.core.codegen import JITCodeLibrary

    numba.config.CPU_NAME, numba.config.CPU_FEATURES = processor, ""
    JITCodeLibrary._finalize_specific = lambda library: None


def instructions(library: Any) -> dict[str, list[str]]:
    """Function → its instructions, as LLVM writes them, for one compiled library."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in library.get_asm_str().splitlines():
        if line.endswith(":") and not line.startswith((".", "\t")):
            current = found.setdefault(line[:-1], [])
        elif match := INSTRUCTION.match(line.partition("//")[0].rstrip()):
            current.append(" ".join(part for part in match.groups() if part))
    return found


def compiled(function: Callable[..., None]) -> list[str]:
    """The instructions of a function whose arguments are all int64."""
    from numba.core import compiler, registry, types

    arguments = (types.int64,) * len(inspect.signature(function).parameters)
    flags = compiler.Flags()
    flags.error_model, flags.no_cpython_wrapper, flags.no_cfunc_wrapper = "numpy", True, True
    target = registry.cpu_target
    result = compiler.compile_extra(
        target.typing_context, target.target_context, function, arguments, types.void, flags, {}
    )
    functions = instructions(result.library)
    return functions[result.fndesc.mangled_name]


def words() -> dict[str, Callable[..., None]]:
    """For each word that computes, a function that loads its operands, applies it and stores the result; for two
    functions made of words, too.
    """
    from cutaway.ops import simd
    from cutaway.ops.cpu import math
    from cutaway.ops.simd import processor

    floats, ints = (simd.load, simd.store), (simd.load_int, simd.store_int)

    def lanewise(word: Any, operands: int, load: Any, store: Any) -> Callable[..., None]:
        def one(x: int, out: int) -> None:
            store(out, word(load(x)))

        def two(x: int, y: int, out: int) -> None:
            store(out, word(load(x), load(y)))

        def three(x: int, y: int, z: int, out: int) -> None:
            store(out, word(load(x), load(y), load(z)))

        return (one, two, three)[operands - 1]

    def of_bytes(word: Any) -> Callable[..., None]:
        def run(x: int, y: int, q: int, out: int) -> None:
            simd.store_int(out, simd.dot_u7(simd.zeros_int(1), word(simd.load_uint8(x), simd.load_uint8(y)), q, 0))

        return run

    def dot(word: Any) -> Callable[..., None]:
        def run(x: int, q: int, stride: int, out: int) -> None:
            total = word(simd.zeros_int(2), simd.load_uint8(x), q, stride)
            simd.store_rows(out, 64, simd.bits_as_float(total))

        return run

    found: dict[str, Callable[..., None]] = {}
    for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
        found[name] = lanewise(getattr(simd, name), 2, *floats)
    for name in ("sqrt", "absolute", "round_even"):
        found[name] = lanewise(getattr(simd, name), 1, *floats)
    for name in ("maximum_int", "add_int", "sub_int", "mul_int", "xor_int", "and_uint", "shift_right", "mul_high_uint"):
        found[name] = lanewise(getattr(simd, name), 2, *ints)
    for name in ("and_bytes", "or_bytes", "sub_bytes", "shift_left_bytes", "shift_right_bytes"):
        found[name] = of_bytes(getattr(simd, name))
    for name in ("dot_u7", "dot_u8"):
        found[name] = dot(getattr(simd, name))
    for name in ("lane_sum", "lane_max"):
        found[name] = lanewise(getattr(simd, name), 1, simd.load, simd.store_scalar)
    for name in ("lane_sum_int", "lane_max_int"):
        found[name] = lanewise(getattr(simd, name), 1, simd.load_int, simd.store_uint32_scalar)
    found["fma"] = lanewise(simd.fma, 3, *floats)
    found["replace_above"] = lanewise(simd.replace_above, 3, *ints)
    found["to_float"] = lanewise(simd.to_float, 1, simd.load_int, simd.store)
    found["power_of_two"] = lanewise(simd.power_of_two, 1, simd.load_int, simd.store)
    found["exp"], found["log"] = lanewise(math.exp, 1, *floats), lanewise(math.log, 1, *floats)
    found["add_exp"] = lanewise(math.add_exp, 2, *floats)
    found["to_int"] = lanewise(simd.to_int, 1, simd.load, simd.store_int)

    def look_up_bytes(low: int, high: int, x: int, q: int, out: int) -> None:
        table = simd.splat_16_bytes(low, high)
        simd.store_int(out, simd.dot_u7(simd.zeros_int(1), simd.look_up_bytes(table, simd.load_uint8(x)), q, 0))

    def load_half(x: int, out: int) -> None:
        simd.store(out, simd.load_half(x))

    def load_half_scalar(x: int, out: int) -> None:
        simd.store_scalar(out, simd.load_half_scalar(x))

    def store_sized(x: int, out: int) -> None:
        simd.store_sized(out, simd.load(x), 2)

    def store_scalar_sized(x: int, out: int) -> None:
        simd.store_scalar_sized(out, simd.load_scalar(x), 2)

    def load_sized_byte(x: int, out: int) -> None:
        simd.store(out, simd.load_sized(x, 1))

    def store_sized_byte(x: int, out: int) -> None:
        simd.store_sized(out, simd.load(x), 1)

    def store_scalar_byte(x: int, out: int) -> None:
        simd.store_scalar_sized(out, simd.load_scalar(x), 1)

    def load_bfloat(x: int, out: int) -> None:
        simd.store(out, simd.load_bfloat(x))

    def load_int8(x: int, out: int) -> None:
        simd.store_int(out, simd.load_int8(x))

    def store_int8(x: int, out: int) -> None:
        simd.store_int8(out, simd.load_int(x))

    def keep_lanes(x: int, first: int, end: int, out: int) -> None:
        simd.store(out, simd.keep_lanes(simd.load(x), first, end, simd.load_scalar(x)))

    def lanes_at_most(x: int, y: int, out: int) -> None:
        simd.store_uint32_scalar(out, simd.lanes_at_most(simd.load(x), simd.load(y)))

    def pause(out: int) -> None:
        processor.pause()

    def cycles(out: int) -> None:
        processor.atomic_store(out, processor.cycles())

    def atomic_add(word: int, out: int) -> None:
        processor.atomic_store(out, processor.atomic_add(word, 1))

    def set_float_environment(state: int, out: int) -> None:
        processor.atomic_store(out, processor.set_float_environment(state))

    def mul_then_add(x: int, y: int, z: int, out: int) -> None:
        simd.store(out, simd.add(simd.mul(simd.load(x), simd.load(y)), simd.load(z)))

    alone: list[Callable[..., None]] = [look_up_bytes, load_half, load_half_scalar, store_sized, store_scalar_sized]
    alone += [load_sized_byte, store_sized_byte, store_scalar_byte]
    alone += [load_bfloat, load_int8, store_int8, keep_lanes, lanes_at_most, mul_then_add]
    alone += [pause, cycles, atomic_add, set_float_environment]
    return found | {function.__name__: function for function in alone}


def main() -> None:
    processor, *formats = sys.argv[1:]
    become(processor)
    from cutaway.ops.cpu.tiles import TILE_FORMATS
    from cutaway.ops.simd import LOWERING

    functions = {name: compiled(function) for name, function in words().items()}
    for name in formats:
        functions[f"{name} one"] = compiled(TILE_FORMATS[name].multiply_one.py_func)
        functions[f"{name} many"] = compiled(TILE_FORMATS[name].multiply_many.py_func)
    print(json.dumps({"lowering": LOWERING, "functions": functions}))


if __name__ == "__main__":
    main()
