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

_SYMBOLS, _REFERENCES, _ZEROS = 2, 4, 8  # types of sections
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
    """An entry of the table of sections."""

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


class _Symbol(NamedTuple):
    """An entry of the table of symbols."""

    name: str
    home: int  # the number of its section
    value: int  # its place there; of a common one, its alignment
    size: int


class _Object(NamedTuple):
    """An object file, taken apart."""

    content: bytes
    machine: int
    sections: list[_Section]
    symbols: list[_Symbol]

    def of(self, section: _Section) -> bytes:
        """A section's bytes."""
        return self.content[section.offset : section.offset + section.size]


class _Layout(NamedTuple):
    """Where in memory its parts are, in bytes from the beginning."""

    sections: dict[int, int]
    commons: dict[int, int]  # symbols that have no section, and take room that is zeros
    far_branches: dict[int, int]  # to symbols that are functions of the system
    size: int


class MachineCode:
    """Code in memory that can be executed and no longer written. It stays as long as the process: a thread may be in it
    when the object goes, at the end of the interpreter at the latest.
    """

    def __init__(self, object_file: bytes) -> None:
        """Raises ValueError for what no code of ours contains (other references, variables) and for a name that
        the system lacks; OSError where the system gives no memory for code.
        """
        found = _take_apart(object_file)
        layout = _lay_out(found)
        private, mode = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        # Shared memory may be refused as code.
        self._memory = mmap.mmap(-1, max(layout.size, 1), flags=private, prot=mode)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for number, place in layout.sections.items():
            section = found.sections[number]
            if section.type != _ZEROS:
                self._memory[place : place + section.size] = found.of(section)
        addresses = [_address(index, symbol, layout, base) for index, symbol in enumerate(found.symbols)]
        self.addresses = {
            symbol.name: address
            for symbol, address in zip(found.symbols, addresses, strict=True)
            if symbol.home in layout.sections
        }
        """Of the functions, by name."""
        self._link(found, layout, addresses, base)
        _make_executable(base, len(self._memory))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))

    def _link(self, found: _Object, layout: _Layout, addresses: list[int], base: int) -> None:
        """Fill in all references. addresses: of the symbols."""
        for index, place in layout.far_branches.items():
            _FAR_BRANCH.pack_into(self._memory, place, _LOAD_X16, _GO_TO_X16, addresses[index])
        for section in found.sections:
            if section.type == _REFERENCES and section.info in layout.sections:
                place = layout.sections[section.info]
                for offset, target, addend in _REFERENCE.iter_unpack(found.of(section)):
                    symbol, kind = target >> 32, target & 0xFFFFFFFF
                    is_far = found.machine == _AARCH64 and kind in _BRANCHES and symbol in layout.far_branches
                    address = base + layout.far_branches[symbol] if is_far else addresses[symbol]
                    self._fill_in(found.machine, kind, place + offset, base, address + addend)

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


def _take_apart(object_file: bytes) -> _Object:
    """Read the tables of sections and symbols."""
    machine = struct.unpack_from("<H", object_file, 18)[0]
    table, (count,) = struct.unpack_from("<Q", object_file, 40)[0], struct.unpack_from("<H", object_file, 60)
    sections = [_Section(*_SECTION.unpack_from(object_file, table + number * 64)) for number in range(count)]
    found = _Object(object_file, machine, sections, [])
    symbols = next((section for section in sections if section.type == _SYMBOLS), None)
    if symbols is None:
        return found
    names = found.of(sections[symbols.link])
    for name, _, _, home, value, size in _SYMBOL.iter_unpack(found.of(symbols)):
        found.symbols.append(_Symbol(names[name : names.index(b"\0", name)].decode(), home, value, size))
    return found


def _lay_out(found: _Object) -> _Layout:
    """Give each section, common symbol and far branch a place. Raises ValueError for variables."""
    places, commons, far_branches, size = dict[int, int](), dict[int, int](), dict[int, int](), 0
    for number, section in enumerate(found.sections):
        if section.flags & _IN_MEMORY and section.size:
            if section.flags & _WRITABLE:
                raise ValueError("compiled code has variables of its own; kernels keep what they change in arrays")
            places[number] = size = _aligned(size, section.alignment)
            size += section.size
    for index, symbol in enumerate(found.symbols):
        if symbol.home == _COMMON:
            commons[index] = size = _aligned(size, symbol.value)
            size += symbol.size
    for index, symbol in enumerate(found.symbols):
        if found.machine == _AARCH64 and symbol.home == _UNDEFINED:
            far_branches[index] = size = _aligned(size, 8)
            size += _FAR_BRANCH.size
    return _Layout(places, commons, far_branches, size)


def _address(index: int, symbol: _Symbol, layout: _Layout, base: int) -> int:
    """Where a symbol is, in this process. Raises ValueError for a name that the system lacks."""
    if symbol.home == _COMMON:
        return base + layout.commons[index]
    if symbol.home in layout.sections:
        return base + layout.sections[symbol.home] + symbol.value
    return _system_function(symbol.name) if symbol.home == _UNDEFINED and symbol.name else symbol.value


def _make_executable(base: int, size: int) -> None:
    """Let the memory be executed, and no longer written. Raises OSError where the system refuses."""
    # On aarch64 Linux makes the caches of instructions and data agree when pages become executable.
    if forget_instructions := getattr(ctypes.CDLL(None), "sys_icache_invalidate", None):  # macOS: the program must
        forget_instructions(ctypes.c_void_p(base), ctypes.c_size_t(size))
    if ctypes.CDLL(None, use_errno=True).mprotect(
        ctypes.c_void_p(base), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC
    ):
        error = ctypes.get_errno()
        raise OSError(error, "the system refuses memory for compiled code")


def _aligned(size: int, alignment: int) -> int:
    return -(-size // max(alignment, 1)) * max(alignment, 1)


def _system_function(name: str) -> int:
    """The address of what the process's libraries call so: memset, syscall, …"""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise ValueError(f"compiled code calls {name!r}, which this system lacks") from None
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
