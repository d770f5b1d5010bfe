"""Machine code from an object file, made ready to run: sections placed in memory, addresses filled in.

In: an object file as LLVM writes it (ELF, 64 bits, for x86-64 or aarch64; System V ABI, chapter 4, and its processor
supplements). Out: a ``MachineCode``, whose functions have addresses. It is a small linker: code that is compiled for
any address (LLVM's large code model) refers to others by whole addresses, so few kinds of reference can occur.
"""

import ctypes
import mmap
import struct
from typing import Final, NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_REFERENCE = struct.Struct("<QQq")  # offset, symbol and kind, addend

_PROGRAM, _SYMBOLS, _REFERENCES, _ZEROS = 1, 2, 4, 8  # types of sections
_WRITABLE, _IN_MEMORY = 1, 2  # flags of a section
_UNDEFINED, _COMMON = 0, 0xFFF2  # numbers of sections that don't exist
_X86_64, _AARCH64 = 62, 183  # machines

_WORD, _DISTANCE, _DISTANCE_32 = "word", "distance", "distance in 32 bits"
_KINDS: Final = {
    (_X86_64, 1): _WORD,  # R_X86_64_64
    (_X86_64, 2): _DISTANCE_32,  # R_X86_64_PC32
    (_X86_64, 24): _DISTANCE,  # R_X86_64_PC64
    (_AARCH64, 257): _WORD,  # R_AARCH64_ABS64
    (_AARCH64, 260): _DISTANCE,  # R_AARCH64_PREL64
    (_AARCH64, 261): _DISTANCE_32,  # R_AARCH64_PREL32
}
_QUARTERS: Final = {263: 0, 264: 0, 265: 16, 266: 16, 267: 32, 268: 32, 269: 48}
"""R_AARCH64_MOVW_UABS_G0 … G3: 16 bits of an address, from this bit on, in bits 5 … 20 of an instruction."""
_BRANCHES: Final = (282, 283)
"""R_AARCH64_JUMP26 and CALL26: a distance in instructions, in the lowest 26 bits of one."""
_FAR_BRANCH: Final = struct.Struct("<IIQ")
"""What a branch of aarch64 leads to whose target may lie farther off than 26 bits reach: load the address behind these
two instructions into x16, which the ABI leaves to linkers, and go there.
"""
_LOAD_X16, _GO_TO_X16 = 0x58000050, 0xD61F0200


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class MachineCode:
    """Code in memory that can be executed and no longer written. It stays as long as the process: a thread may be in it
    when the object goes, at the end of the interpreter at the latest.
    """

    def __init__(self, object_file: bytes) -> None:
        """Raises ValueError for what no code of ours contains (other references, variables) and for a name that
        the system lacks; OSError where the system gives no memory for code.
        """
        machine = struct.unpack_from("<H", object_file, 18)[0]
        table, (count,) = struct.unpack_from("<Q", object_file, 40)[0], struct.unpack_from("<H", object_file, 60)
        sections = [_Section(*_SECTION.unpack_from(object_file, table + number * 64)) for number in range(count)]

        places, size = {}, 0  # of the sections that are in memory
        for number, section in enumerate(sections):
            if section.flags & _IN_MEMORY and section.size:
                if section.flags & _WRITABLE:
                    raise ValueError("compiled code has variables of its own; kernels keep what they change in arrays")
                size = _aligned(size, section.alignment)
                places[number] = size
                size += section.size
        symbols = next((section for section in sections if section.type == _SYMBOLS), None)
        entries = [] if symbols is None else list(_SYMBOL.iter_unpack(_content(object_file, symbols)))
        names = b"" if symbols is None else _content(object_file, sections[symbols.link])
        commons = {}
        for index, (_, _, _, home, alignment, length) in enumerate(entries):
            if home == _COMMON:
                size = _aligned(size, alignment)
                commons[index] = size
                size += length

        far_branches = {}  # to functions of the system
        for index, (_, _, _, home, _, _) in enumerate(entries):
            if machine == _AARCH64 and home == _UNDEFINED:
                size = _aligned(size, 8)
                far_branches[index] = size
                size += _FAR_BRANCH.size

        private, mode = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        self._memory = mmap.mmap(-1, max(size, 1), flags=private, prot=mode)  # shared memory may be refused as code
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for number, place in places.items():
            if sections[number].type != _ZEROS:
                self._memory[place : place + sections[number].size] = _content(object_file, sections[number])

        addresses = []
        self.addresses: dict[str, int] = {}  # of the functions
        for index, (name, _, _, home, value, _) in enumerate(entries):
            text = names[name : names.index(b"\0", name)].decode()
            if home == _COMMON:
                addresses.append(base + commons[index])
            elif home in places:
                addresses.append(base + places[home] + value)
                self.addresses[text] = addresses[-1]
            else:
                addresses.append(_system_function(text) if home == _UNDEFINED and text else value)

        for index, place in far_branches.items():
            _FAR_BRANCH.pack_into(self._memory, place, _LOAD_X16, _GO_TO_X16, addresses[index])

        for section in sections:
            if section.type == _REFERENCES and section.info in places:
                place = places[section.info]
                for offset, target, addend in _REFERENCE.iter_unpack(_content(object_file, section)):
                    symbol, kind = target >> 32, target & 0xFFFFFFFF
                    is_far = machine == _AARCH64 and kind in _BRANCHES and symbol in far_branches
                    address = base + far_branches[symbol] if is_far else addresses[symbol]
                    self._fill_in(machine, kind, place + offset, base, address + addend)
        # On aarch64 Linux makes the caches of instructions and data agree when pages become executable.
        if forget_instructions := getattr(ctypes.CDLL(None), "sys_icache_invalidate", None):  # macOS: the program must
            forget_instructions(ctypes.c_void_p(base), ctypes.c_size_t(len(self._memory)))
        if ctypes.CDLL(None, use_errno=True).mprotect(
            ctypes.c_void_p(base), ctypes.c_size_t(len(self._memory)), mmap.PROT_READ | mmap.PROT_EXEC
        ):
            error = ctypes.get_errno()
            raise OSError(error, "the system refuses memory for compiled code")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))

    def _fill_in(self, machine: int, kind: int, place: int, base: int, target: int) -> None:
        """Write a reference to the address ``target`` at ``place`` in the memory."""
        distance = target - (base + place)
        known = _KINDS.get((machine, kind))
        if known == _WORD:
            struct.pack_into("<Q", self._memory, place, target)
        elif known == _DISTANCE:
            struct.pack_into("<q", self._memory, place, distance)
        elif known == _DISTANCE_32 and -(2**31) <= distance < 2**31:
            struct.pack_into("<i", self._memory, place, distance)
        elif machine == _AARCH64 and kind in _BRANCHES and -(2**27) <= distance < 2**27:
            instruction = struct.unpack_from("<I", self._memory, place)[0] & ~0x3FFFFFF
            struct.pack_into("<I", self._memory, place, instruction | distance >> 2 & 0x3FFFFFF)
        elif machine == _AARCH64 and kind in _QUARTERS:
            instruction = struct.unpack_from("<I", self._memory, place)[0] & ~(0xFFFF << 5)
            quarter = target >> _QUARTERS[kind] & 0xFFFF
            struct.pack_into("<I", self._memory, place, instruction | quarter << 5)
        else:
            raise ValueError(f"a reference of kind {kind} over {distance} bytes, machine {machine}, can't be filled in")


def _aligned(size: int, alignment: int) -> int:
    return -(-size // max(alignment, 1)) * max(alignment, 1)


def _content(object_file: bytes, section: _Section) -> bytes:
    return object_file[section.offset : section.offset + section.size]


def _system_function(name: str) -> int:
    """The address of what the process's libraries call so: memset, syscall, …"""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise ValueError(f"compiled code calls {name!r}, which this system lacks") from None
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
