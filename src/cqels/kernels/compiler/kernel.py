"""How kernels are compiled and loaded: a file of them at a time, when one of them is first called.

No kernel depends on a query, so the package has them compiled for the usual processors (`precompile.py`).  Where it has
not, or a file was changed since, they are compiled here and kept in the user's cache folder between runs.

All kernels of a file become one *unit*: one module for LLVM, one object file.  A small kernel of another file is copied
into the units that call it, so that it can be inlined; a large one is called by its name in its own unit, which is
loaded before.  So nothing large is compiled twice, and a query loads only what it needs.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cqels.model.folders import cache_part
from cqels.model.interrupts import undisturbed

SMALL = 150
"""Nodes of the syntax tree up to which a kernel of another file is copied instead of called."""
_VERSION = 1


class Kernel:
    """A compiled function of words. Python and other kernels call it as any function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.symbol = f"{function.__module__.removeprefix('cqels.kernels.')}.{function.__name__}"
        self._source: Any = None
        self._native: Callable[..., Any] | None = None
        UNITS.setdefault(function.__module__, []).append(self)

    def __repr__(self) -> str:
        return f"<kernel {self.symbol}>"

    def __call__(self, *arguments: Any) -> Any:
        native = self._native or self._loaded()
        try:
            return native(*arguments)
        except ctypes.ArgumentError:  # numbers of numpy
            return native(*(each if isinstance(each, float) else int(each) for each in arguments))

    @property
    def source(self) -> Any:
        """Its text, parsed when something is compiled."""
        if self._source is None:
            from cqels.kernels.compiler.type_inference import Source

            self._source = Source(self)
        return self._source

    @property
    def address(self) -> int:
        """Where its machine code is in this process: of kernels that are called through `memory.call`."""
        unit = load_unit(self.__module__)
        return unit.address(self.symbol)

    def _loaded(self) -> Callable[..., Any]:
        unit = load_unit(self.__module__)
        self._native = unit.callable(self.symbol)
        return self._native


UNITS: dict[str, list[Kernel]] = {}
"""The kernels of each file, by the name of its module."""


def kernel(function: Callable[..., Any]) -> Kernel:
    """Let a function be compiled, with its file, at its first call."""
    return Kernel(function)


class Unit:
    """A compiled file of kernels in this process."""

    def __init__(self, engine: Any, signatures: dict[str, list[Any]]) -> None:
        self._engine = engine
        self._signatures = signatures

    def address(self, symbol: str) -> int:
        address = int(self._engine.get_function_address(symbol))
        if address == 0:
            raise AttributeError(f"{symbol} is not a kernel that can be called from outside its file")
        return address

    def callable(self, symbol: str) -> Callable[..., Any]:
        arguments, result = self._signatures[symbol]
        native = [ctypes.c_double if kind == "float" else ctypes.c_int64 for kind in arguments]
        if isinstance(result, list):
            return self._several(symbol, native, result)
        made = ctypes.c_double if result == "float" else ctypes.c_int64
        function = ctypes.CFUNCTYPE(made, *native)(self.address(symbol))
        if result == "bool":
            return lambda *given: function(*given) != 0
        return function

    def _several(self, symbol: str, arguments: list[Any], results: list[str]) -> Callable[..., Any]:
        """What gives several values writes them through a pointer for Python."""
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, *arguments)(self.address(f"{symbol}.several"))
        layout = struct.Struct("".join("d" if kind == "float" else "q" for kind in results))

        def call(*given: Any) -> tuple[Any, ...]:
            made = ctypes.create_string_buffer(layout.size)
            function(ctypes.addressof(made), *given)
            found = layout.unpack(made)
            return tuple(value != 0 if kind == "bool" else value for value, kind in zip(found, results, strict=True))

        return call


# ---------------------------------------------------------------- loading

_LOCK = threading.RLock()
_LOADED: dict[str, Unit] = {}


def load_unit(module: str) -> Unit:
    """The unit of a module, compiled or read from the cache, with those that it calls."""
    unit = _LOADED.get(module)
    if unit is None:
        with _LOCK:
            unit = _LOADED.get(module) or _load(module)
    return unit


def _load(module: str) -> Unit:
    with undisturbed():  # an object of LLVM that is half made ends the process when it goes
        header, code = shipped(module) or _cached(module) or _compiled(module)
    for needed in header["needs"]:
        load_unit(needed)
    with undisturbed():
        engine = _engine()
        from llvmlite import binding

        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        for symbol in header["signatures"]:
            binding.add_symbol(symbol, engine.get_function_address(symbol))
        unit = _LOADED[module] = Unit(engine, header["signatures"])
    return unit


@cache
def _engine() -> Any:
    from llvmlite import binding

    return binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())


@cache
def _machine() -> Any:
    from llvmlite import binding

    return target_machine(binding.get_host_cpu_name(), _features())


def target_machine(cpu: str, features: str = "") -> Any:
    """What makes machine code for a processor of this machine's architecture."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=2, codemodel="jitdefault", jit=True)


def _features() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_features().flatten())


# ---------------------------------------------------------------- what the package has compiled

COMPILED = "compiled"
"""The folder of object files in the package of kernels, with one for each level of processors."""
_V2 = frozenset(["cx16", "popcnt", "sse4.2", "ssse3"])
_V3 = _V2 | {"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
LEVELS: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {
    "x86_64": (("x86-64-v3", _V3), ("x86-64-v2", _V2)),
    "aarch64": (("generic", frozenset()),),
    "arm64": (("apple-m1", frozenset()),),
}
"""For each architecture the processors that kernels are compiled for, the best first, and the features they need."""


@cache
def level() -> str | None:
    """The best processor of `LEVELS` whose code this one runs; None if it is unknown."""
    from llvmlite import binding

    levels = LEVELS.get(platform.machine().replace("AMD64", "x86_64"), ())
    able = {name for name, there in binding.get_host_cpu_features().items() if there}
    return next((name for name, needed in levels if needed <= able), None)


def shipped(module: str) -> tuple[dict[str, Any], bytes] | None:
    """The unit of a module as the package has it, if it is of the texts that are there now."""
    name = level()
    if name is None:
        return None
    file = files("cqels.kernels") / COMPILED / name / object_name(module)
    try:
        return _unsealed(file.read_bytes())
    except OSError:
        return None


def object_name(module: str) -> str:
    """The name of a unit's object file, which tells the texts that it was made of."""
    parts = [_VERSION, *_texts(module)]
    stamp = hashlib.sha256(repr(parts).encode()).hexdigest()
    return f"{module.removeprefix('cqels.kernels.')}-{stamp[:20]}.o"


def _texts(module: str) -> list[str]:
    compiler = ("kernel", "type_inference", "codegen", "value_codegen")
    return [*(_text(f"{__package__}.{each}") for each in compiler), *map(_text, sorted(_reached(module)))]


# ---------------------------------------------------------------- the cache


@cache
def cache_folder() -> Path | None:
    """A folder of this user alone for object files, which are run; None if there is none."""
    return cache_part("kernels")


def _cached(module: str) -> tuple[dict[str, Any], bytes] | None:
    path = _path(module)
    try:
        content = path.read_bytes() if path else b""
    except OSError:
        return None
    return _unsealed(content)


def sealed(header: dict[str, Any], code: bytes) -> bytes:
    """The content of an object file: a checksum, the header and the machine code."""
    head = json.dumps(header).encode()
    return hashlib.sha256(head + code).hexdigest().encode() + b" " + head + b"\n" + code


def _unsealed(content: bytes) -> tuple[dict[str, Any], bytes] | None:
    head, found, code = content.partition(b"\n")
    stamp, _, head = head.partition(b" ")
    if not found or stamp != hashlib.sha256(head + code).hexdigest().encode():
        return None  # there is none, or it was not written to its end
    return json.loads(head), code


def _keep(module: str, header: dict[str, Any], code: bytes) -> None:
    path = _path(module)
    if path is None:
        return
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(sealed(header, code))
        os.replace(file.name, path)
    except OSError:
        return  # a full disk costs time, not results


def _path(module: str) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    return folder / f"{module.removeprefix('cqels.kernels.')}-{_stamp(module)[:20]}.o"


@cache
def _stamp(module: str) -> str:
    """A name for all that a unit's machine code depends on."""
    import llvmlite
    from llvmlite import binding

    parts = [_VERSION, llvmlite.__version__, sys.version_info[:2], platform.machine(), binding.get_host_cpu_name()]
    parts += [_features(), *_texts(module)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _reached(module: str) -> set[str]:
    """The modules whose texts a unit depends on: those of kernels and constants it names, and of those in turn."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name not in sys.modules:
            continue
        found.add(name)
        waiting += _named(name)
    return found


@cache
def _named(module: str) -> set[str]:
    """The modules whose kernels, constants and classes a module names."""
    owners = set()
    for value in vars(sys.modules[module]).values():
        owner = value.__name__ if isinstance(value, type(sys)) else getattr(value, "__module__", None)
        if isinstance(owner, str) and (owner in UNITS or owner.startswith("cqels.")):
            owners.add(owner)
    return owners


@cache
def _text(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    loader: Any = spec.loader  # which has texts in a zip, too
    return hashlib.sha256(loader.get_data(spec.origin)).hexdigest()


# ---------------------------------------------------------------- compiling


def _compiled(module: str) -> tuple[dict[str, Any], bytes]:
    """The unit of a module for this processor, which is kept."""
    header, code = compile_unit(module, _machine())
    _keep(module, header, code)
    return header, code


def compile_unit(module: str, machine: Any) -> tuple[dict[str, Any], bytes]:
    """Translate and compile the kernels of a module."""
    from llvmlite import binding

    text, header = assembly(module)
    code = binding.parse_assembly(text)
    code.verify()
    tuning = binding.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = False  # loops over the words of a row are short
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(code, builder)
    return header, machine.emit_object(code)


def assembly(module: str) -> tuple[str, dict[str, Any]]:
    """The intermediate code of a unit, and what has to be known to load it: the units it calls, and signatures."""
    from llvmlite import ir

    from cqels.kernels.compiler.codegen import Emitter
    from cqels.kernels.compiler.type_inference import WORD, native_result

    unit = ir.Module(module)
    functions: dict[Kernel, ir.Function] = {}
    waiting: list[Kernel] = []
    needs: set[str] = set()

    def declared(each: Kernel) -> ir.Function:
        if each in functions:
            return functions[each]
        source = each.source
        source.infer()
        arguments = [ir.DoubleType() if kind == "float" else WORD for kind in source.arguments]
        function = ir.Function(unit, ir.FunctionType(native_result(source.result), arguments), each.symbol)
        functions[each] = function
        own = each.__module__ == module
        if own or source.size <= SMALL:
            waiting.append(each)
            function.attributes.add("nounwind")
            function.linkage = "" if own and _is_public(each) else "internal"
        else:
            needs.add(each.__module__)
        return function

    own = [each for each in UNITS[module] if _is_public(each)]
    for each in own:
        declared(each)
    while waiting:
        each = waiting.pop()
        Emitter(each.source, functions[each], declared)
    signatures = {each.symbol: [list(each.source.arguments), _plain(each.source.result)] for each in own}
    for each in own:
        if isinstance(each.source.result, tuple):
            _several(unit, functions[each], len(each.source.result))
    unit.triple, unit.data_layout = _machine().triple, str(_machine().target_data)
    return str(unit), {"needs": sorted(needs), "signatures": signatures}


def _several(unit: Any, function: Any, count: int) -> None:
    """For Python: the same kernel, its several values written one after the other."""
    from llvmlite import ir

    from cqels.kernels.compiler.type_inference import WORD

    kinds = [argument.type for argument in function.args]
    outer = ir.Function(unit, ir.FunctionType(WORD, [WORD, *kinds]), f"{function.name}.several")
    builder = ir.IRBuilder(outer.append_basic_block())
    made = builder.call(function, outer.args[1:])
    for number in range(count):
        part = builder.extract_value(made, number)
        at = builder.add(outer.args[0], WORD(8 * number))
        builder.store(part, builder.inttoptr(at, part.type.as_pointer()))
    builder.ret(WORD(0))


def _is_public(each: Kernel) -> bool:
    """Called from outside its file: by its name, or by a small kernel of its file that was copied there."""
    return not each.__name__.startswith("_") or each.source.size > SMALL


def _plain(result: Any) -> Any:
    return list(result) if isinstance(result, tuple) else result
