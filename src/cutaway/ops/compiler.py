"""The compiler: Numba's, from Python functions to object files, with settings and a cache of parts of our own.

In: a function and values of the types of its arguments. Out: an object file with one function to call from outside,
``kernel_cache.ENTRY``. No process that finds its kernels in the cache imports this module.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import compiler as numba_compiler
from numba.core import serialize as numba_serialize
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, cpu_target

from cutaway.ops import kernel_files
from cutaway.ops.kernel_cache import ENTRY, Compiled, Inlined, Part, tell

compiler: Any = numba_compiler  # these have no types
serialize: Any = numba_serialize
target: Any = cpu_target

_OPTIONS: Final = {
    "nopython": True,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
    "no_cpython_wrapper": True,  # Python calls the entry
    "no_cfunc_wrapper": True,  # nobody passes a compiled function as an argument
    "_nrt": False,  # kernels allocate nothing, so no reference is counted
}
_LEFT_OUT: Final = (
    typed_passes.DumpParforDiagnostics,
    typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites,  # expressions of whole arrays
    untyped_passes.FindLiterallyCalls,
    untyped_passes.InlineClosureLikes,
    untyped_passes.LiteralPropagationSubPipelinePass,
    untyped_passes.LiteralUnroll,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.WithLifting,
)
"""Numba's passes for what no kernel has."""
_I8P, _I32, _I64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)


def part(source: Part) -> "PartDispatcher":
    """Numba's dispatcher of a function, by which other compiled functions call it. There is one for each."""
    with global_compiler_lock:
        if "_dispatcher" not in source.__dict__:
            source.__dict__["_dispatcher"] = PartDispatcher(source)
    found: PartDispatcher = source.__dict__["_dispatcher"]
    return found


def inline(source: Inlined) -> Any:
    """Numba's dispatcher of a helper that is inlined."""
    with global_compiler_lock:
        if "_dispatcher" not in source.__dict__:
            source.__dict__["_dispatcher"] = numba.njit(inline="always")(source.py_func)
    return source.__dict__["_dispatcher"]


def types_of(values: Any) -> tuple[Any, ...]:
    """Numba's types of these values."""
    typeof: Any = numba.typeof
    return tuple(typeof(value) for value in values)


def compile_entry(source: Compiled, values: Any) -> tuple[list[str], bytes]:
    """The function for values of these types, callable from outside: the kinds of its results, and an object file.

    The entry takes the address of the arguments' words and that of the results', and returns a status, 0 if all is
    well.
    """
    with global_compiler_lock:
        arguments = types_of(values)
        if not source.is_part or part(source).is_kept(arguments):  # else it tells itself
            tell(source.py_func.__name__)
        if source.is_part:
            result = part(source).result(arguments)
            library = _new_library(f"{ENTRY} of {source.py_func.__qualname__}")
            library.add_linking_library(result.library)
        else:
            result = _compile(source.py_func, arguments)
            library = result.library
        kinds = _add_entry(library, result)
        return kinds, _object_file(library)


def compile_kernel(function: Callable[..., None]) -> bytes:
    """A function of int64 arguments alone as a C function: ``void entry(int64, …)``."""
    with global_compiler_lock:
        tell(function.__name__)
        result = _compile(function, (types.int64,) * len(inspect.signature(function).parameters), types.void)
        _add_c_function(result.library, result)
        return _object_file(result.library)


class _Pipeline(numba_compiler.CompilerBase):
    """Numba's pipeline without the passes that are left out."""

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        passes: Any = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        kept = [each for each in passes.passes if each[0] not in _LEFT_OUT]
        # Branches that are never taken are looked for three times; once, with all helpers inlined, is enough.
        names = [each[0] for each in kept]
        inlined = names.index(untyped_passes.InlineInlinables)
        prune = names.index(untyped_passes.DeadBranchPrune, inlined)
        passes.passes = [
            each for place, each in enumerate(kept) if each[0] is not untyped_passes.DeadBranchPrune or place == prune
        ]
        passes.finalize()
        return [passes]


class _Library(JITCodeLibrary):
    """LLVM's code of a function and of what it calls. LLVM's passes go over it once, when it is whole.

    Numba's own way is twice, with a look for counts of references in between, of which kernels have none, and over each
    part as well, of which it makes machine code for the process that compiles.
    """

    is_whole = False

    def _optimize_functions(self, module: Any) -> None:
        codegen: Any = self._codegen
        module.data_layout = codegen._data_layout
        passes, builder = codegen._function_pass_manager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        if self.is_whole:
            codegen: Any = self._codegen
            self._final_module.triple = elf_triple(self._final_module.triple)
            passes, builder = codegen._module_pass_manager()
            passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalized = True


def _new_library(name: str, bitcode: bytes | None = None) -> Any:
    """An empty library, or one made of what was saved."""
    kind: Any = _Library
    library = kind(target.target_context.codegen(), name)
    if bitcode is not None:
        library._final_module, library._finalized = llvm.parse_bitcode(bitcode), True
    return library


def _compile(function: Callable[..., Any], arguments: tuple[Any, ...], returned: Any = None) -> Any:
    """Numba's result: a library of LLVM's code to which more can be added. No machine code is made."""
    flags = compiler.Flags()
    target.options.parse_as_flags(flags, _OPTIONS)
    flags.no_compile = True
    typing, context = target.typing_context, target.target_context
    library = _new_library(function.__qualname__)
    return compiler.compile_extra(typing, context, function, arguments, returned, flags, {}, library, _Pipeline)


def _object_file(library: Any) -> bytes:
    """Optimise the library as a whole, and make machine code of it."""
    library.is_whole = True
    library.finalize()
    codegen, module = library.codegen, library._final_module
    machine = codegen._tm
    if module.triple != machine.triple:  # the host's own object files are of another kind
        config: Any = numba.config
        options = {"opt": config.OPT}
        codegen._customize_tm_options(options)
        machine = llvm.Target.from_triple(module.triple).create_target_machine(**options)
        module.data_layout = str(machine.target_data)
    return bytes(machine.emit_object(module))


def elf_triple(triple: str) -> str:
    """LLVM's name of a system like this one whose object files are ELF: the system itself, where it is Linux."""
    processor, *others = triple.split("-")
    return triple if "linux" in others else f"{processor.replace('arm64', 'aarch64')}-unknown-linux-gnu"


def _add_c_function(library: Any, result: Any) -> None:
    """``void entry(int64, …)``, which calls the function."""
    context = result.target_context
    module = library.create_ir_module(ENTRY)
    arguments = result.signature.args
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * len(arguments)), ENTRY)
    builder = ir.IRBuilder(function.append_basic_block())
    callee = context.declare_function(module, result.fndesc)
    context.call_conv.call_function(builder, callee, types.void, arguments, function.args)
    builder.ret_void()
    library.add_ir_module(module)


def _add_entry(library: Any, result: Any) -> list[str]:
    """``int32 entry(words, results)``, which reads the arguments from memory and calls the function. Returns the kinds
    of its results.
    """
    context, signature = result.target_context, result.signature
    module = library.create_ir_module(ENTRY)
    function = ir.Function(module, ir.FunctionType(_I32, [_I8P, _I8P]), ENTRY)
    builder = ir.IRBuilder(function.append_basic_block())
    words, results = function.args

    def word(base: ir.Value, place: int, kind: ir.Type) -> ir.Value:
        return builder.bitcast(builder.gep(base, [ir.Constant(_I64, 8 * place)]), kind.as_pointer())

    packer = context.get_arg_packer(signature.args)
    flat = [builder.load(word(words, place, kind)) for place, kind in enumerate(packer.argument_types)]
    callee = context.declare_function(module, result.fndesc)
    status, value = context.call_conv.call_function(
        builder, callee, signature.return_type, signature.args, packer.from_arguments(builder, flat)
    )
    returned: Any = signature.return_type
    if returned == types.none:
        items = []
    elif isinstance(returned, types.UniTuple | types.Tuple) and len(returned) > 1:
        items = [(kind, builder.extract_value(value, place)) for place, kind in enumerate(returned.types)]
    else:
        items = [(returned, value)]
    kinds = []
    for place, (kind, item) in enumerate(items):
        if isinstance(kind, types.Boolean):
            kinds.append("bool")
            item = builder.zext(item, _I64)
        elif isinstance(kind, types.Integer):
            signed: bool = getattr(kind, "signed")  # noqa: B009  (Numba's types don't name it)
            kinds.append("int" if signed else "uint")
            item = context.cast(builder, item, kind, types.int64 if signed else types.uint64)
        elif kind in (types.float32, types.float64):
            kinds.append(kind.name)
        else:
            raise TypeError(f"a compiled function that Python calls can't return {kind}; return a number, or several")
        builder.store(item, word(results, place, item.type))
    builder.ret(status.code)
    library.add_ir_module(module)
    return kinds


class PartDispatcher(CPUDispatcher):
    """A function as a part of others. What is compiled of it is LLVM's code, which the cache keeps for other processes;
    machine code is made of the whole alone.
    """

    def __init__(self, source: Part) -> None:
        super().__init__(source.py_func, {}, dict(_OPTIONS))
        self._source = source

    def result(self, arguments: tuple[Any, ...]) -> Any:
        """Numba's result for arguments of these types."""
        self.compile(arguments)
        return self.overloads[arguments]

    def compile(self, signature: Any) -> Any:
        """Compile for a signature, or find it in the cache. Returns a key, as Numba's dispatchers return an address."""
        unliteral: Any = types.unliteral  # no variant for a number that is known
        arguments = tuple(unliteral(argument) for argument in signature)
        with global_compiler_lock:
            context: Any = self.targetctx
            overloads: dict[Any, Any] = self.overloads
            if arguments not in overloads:
                path = kernel_files.path(self._source.place, tuple(map(str, arguments)), kernel_files.PART)
                found = self._loaded(path) or self._compiled(path, arguments)
                context.insert_user_function(found.entry_point, found.fndesc, [found.library])
                overloads[arguments] = found
            return overloads[arguments].entry_point

    def is_kept(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the cache on disk has the part for arguments of these types."""
        return kernel_files.path(self._source.place, tuple(map(str, arguments)), kernel_files.PART).exists()

    def _compiled(self, path: Any, arguments: tuple[Any, ...]) -> Any:
        tell(self.py_func.__name__)
        result = _compile(self.py_func, arguments)
        description = result.fndesc
        description.typemap = description.calltypes = None  # large, and of no use any more
        content = (result.library.serialize_using_bitcode(), description, result.signature)
        kernel_files.save(path, serialize.dumps(content))
        return result._replace(entry_point=object())

    def _loaded(self, path: Any) -> Any:
        content = kernel_files.load(path)
        if content is None:
            return None
        (name, _, bitcode), description, signature = serialize.loads(content)
        return compiler.compile_result(
            typing_context=self.typingctx,
            target_context=self.targetctx,
            entry_point=object(),
            typing_error=None,
            library=_new_library(name, bitcode),
            signature=signature,
            objectmode=False,
            fndesc=description,
            environment=None,
        )
