"""A generated program in this process: its C as a shared library.

The C compiler is that of the environment variable CC, with the options in CFLAGS, as the generated
Makefile takes them. Libraries are kept by their content in the directory POETC_CACHE, by default
`poetc` in that of the user's cache, and those that were not used for a month are removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.compiler import find_compiler
from poetc.backends.c.emit import Executor, generate
from poetc.backends.c.entries import EntryPoint, entry_arguments
from poetc.backends.c.layout import TensorPlace, argument_places, result_places
from poetc.backends.c.libraries.library import OPTIONS
from poetc.backends.c.runtime_files import RUNTIME
from poetc.errors import InputError, StepError
from poetc.files import write_whole
from poetc.image import ImageLayout, layout_of
from poetc.ir.dense import dtype_of
from poetc.ir.poet import GraphOp

CACHE, COMPILER, FLAGS = "POETC_CACHE", "CC", "CFLAGS"
"""Environment variables: where libraries are kept, and how they are compiled."""

KEPT_DAYS = 30
"""A library is deleted when it was not used for so long."""

_GLUE = Path(__file__).parent / "shared.c"
_FUNCTIONS = """\
/* The step, or another entry point. */
#include "model.h"

#define EXPORTED __attribute__((visibility("default")))

poetc_store *poetc_shared_store(void);
EXPORTED void *{prefix}argument(uint32_t i);
EXPORTED const void *{prefix}result(uint32_t i);
EXPORTED poetc_status {prefix}step(const void *const *arguments, void *const *results);

void *{prefix}argument(uint32_t i)
{{
    return {name}_argument(i);
}}

const void *{prefix}result(uint32_t i)
{{
    return {name}_result(i);
}}

/* The pointers are those of the buffers of the caller, by number. */
poetc_status {prefix}step(const void *const *arguments, void *const *results)
{{
#ifdef {macro}_ON
    return {macro}_ON(poetc_shared_store(), arguments, results);
#else
    (void)arguments;
    (void)results;
    return {step}(poetc_shared_store());
#endif
}}
"""
_REQUIRED = ("-std=c99", "-fPIC", "-shared", "-fvisibility=hidden", *OPTIONS)
_LEFT_OUT = ("main.c", "store_file.c", "store_thread.c")
"""Files that the program has for a process of its own."""

UNTOUCHED = ("BYTE_ORDER", "FLOAT_ROUNDING", "FLOAT_DENORMALS", "FLOAT_EXPRESSIONS")
"""Statuses of a step that has done nothing."""


@cache
def statuses() -> tuple[str, ...]:
    """The names of `poetc_status` without `POETC_`, in the order of their numbers."""
    text = (RUNTIME / "poetc_store.h").read_text(encoding="utf-8")
    found = re.search(r"typedef enum \{(.*?)\} poetc_status;", text, re.DOTALL)
    assert found is not None
    return tuple(re.findall(r"^    POETC_(\w+)", found[1], re.MULTILINE))


def cache_directory() -> Path:
    """The directory in which libraries are kept."""
    if (asked := os.environ.get(CACHE)) is not None:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "poetc"


def build(files: Mapping[str, str]) -> Path:
    """The shared library of the generated files of a model called `model`.

    Raises InputError where there is no C compiler, where it fails, and where nothing can be kept.
    """
    found = find_compiler(os.environ.get(COMPILER), "a program in this process", COMPILER)
    # Vectors are fast in registers that are wide enough, which a compiler is to be told of.
    compiler = (*found, *shlex.split(os.environ.get(FLAGS, "-O2 -march=native")))
    files = {name: text for name, text in files.items() if name.endswith((".c", ".h", ".s"))}
    files[_GLUE.name] = _GLUE.read_text(encoding="utf-8")
    about = (compiler, _REQUIRED, _version(compiler[0]), _instruction_set())
    key = hashlib.sha256(repr(about).encode())
    for name in sorted(files):
        key.update(f"{name}\0{files[name]}\0".encode())
    directory = cache_directory()
    with _kept_in(directory):
        return _kept(files, compiler, directory, key.hexdigest()[:32])


def _instruction_set() -> str:
    """The line in which Linux lists what the processor can do; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@contextlib.contextmanager
def _kept_in(directory: Path) -> Iterator[None]:
    """Raises InputError where libraries cannot be kept in, or loaded from, a directory."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot keep compiled programs in {directory} ({error.strerror or error}); {CACHE} "
            "names another directory"
        ) from error


def _kept(files: Mapping[str, str], compiler: Sequence[str], directory: Path, name: str) -> Path:
    """The library of that name in the directory."""
    library = directory / f"{name}.so"
    directory.mkdir(parents=True, exist_ok=True)
    if library.exists():
        os.utime(library)
        return library
    with tempfile.TemporaryDirectory(prefix="poetc-") as folder:
        write_whole(library, _compiled(files, compiler, Path(folder)))
    _prune(directory)
    return library


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


def _compiled(files: Mapping[str, str], compiler: Sequence[str], folder: Path) -> bytes:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    sources = sorted(n for n in files if not n.endswith(".h") and n not in _LEFT_OUT)
    command = [*compiler, *_REQUIRED, "-o", "model.so", *sources]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise InputError(f"{shlex.join(compiler)} does not compile the program:\n{done.stderr}")
    return (folder / "model.so").read_bytes()


def _prune(directory: Path) -> None:
    """Removes what was not used for long; another process may do the same."""
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for library in directory.glob("*.so"):
        with contextlib.suppress(FileNotFoundError):
            if library.stat().st_mtime < oldest:
                library.unlink()


class SharedFunction:
    """A step in this process, or another entry point: `arguments` and `results` say where each
    is."""

    def __init__(
        self,
        library: ctypes.CDLL,
        prefix: str,
        arguments: tuple[TensorPlace, ...],
        results: tuple[TensorPlace, ...],
    ) -> None:
        """The functions of `library` that begin with `prefix`."""
        self.arguments, self.results, self._library = arguments, results, library
        at_argument, at_result = library[f"{prefix}argument"], library[f"{prefix}result"]
        for function in (at_argument, at_result):
            function.argtypes, function.restype = [ctypes.c_uint32], ctypes.c_void_p
        self._step = library[f"{prefix}step"]
        self._step.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._step.restype = ctypes.c_int
        self._arguments = [_view(p, at_argument(i)) for i, p in enumerate(self.arguments)]
        self._results = [_view(p, at_result(i)) for i, p in enumerate(self.results)]
        self._argument_buffers = (ctypes.c_void_p * (len(self.arguments) + 1))()
        self._result_buffers = (ctypes.c_void_p * (len(self.results) + 1))()
        self._held: dict[int, np.ndarray] = {}

    def argument(self, i: int) -> np.ndarray:
        """The bytes of an argument that is not on storage, where the program has them."""
        view = self._arguments[i]
        return self._held[i] if view is None else view

    def set_argument(self, i: int, array: np.ndarray) -> None:
        """Sets an argument that is not on storage, of its shape and type. One that the program
        reads in a buffer of the caller is not copied where that is not necessary, and must not be
        changed until the next one is set."""
        view = self._arguments[i]
        if view is not None:
            view[...] = array
            return
        held = np.require(array, requirements=("C", "ALIGNED"))
        if _address(held) % 8:
            held = _aligned(held)
        self._held[i] = held
        self._argument_buffers[i] = _address(held)

    def share_argument(self, i: int, other: SharedFunction, j: int) -> None:
        """Lets argument `i` be argument `j` of another function, where that is in a buffer."""
        self._argument_buffers[i] = other._argument_buffers[j]

    def step(self) -> list[np.ndarray | None]:
        """Does a step, without the lock of the interpreter. Returns the results that are no new
        values of arguments, as new arrays; None in place of others.

        Raises StepError; parameters in RAM are lost then, unless its status is one of `UNTOUCHED`.
        """
        fresh: dict[int, np.ndarray] = {}
        for k, place in enumerate(self.results):
            if place.of_caller:
                fresh[k] = _aligned(np.empty(place.shape, dtype_of(place.type.element_type)))
                self._result_buffers[k] = _address(fresh[k])
        status = self._step(self._argument_buffers, self._result_buffers)
        if status:
            text = self._library.poetc_shared_text(status).decode()
            raise StepError(f"the step failed: {text}", statuses()[status])
        results: list[np.ndarray | None] = []
        for k, place in enumerate(self.results):
            view = self._results[k]
            if place.updates is not None:
                results.append(None)
            else:
                results.append(fresh[k] if view is None else view.copy())
        return results


class SharedProgram(SharedFunction):
    """A program in this process, with an arena and a storage of its own; itself, it is the step.

    `storage` are the bytes of the page store, whose image is laid out as `image` says (None: no
    parameters are there). `entries` are other entry points by name. Not for several threads at
    once.
    """

    def __init__(
        self,
        module: ModuleOp,
        graph: GraphOp,
        executor: Executor | None = None,
        entries: Sequence[EntryPoint] = (),
    ) -> None:
        """Builds the one graph of a scheduled and planned module, with other entry points. Raises
        InputError as `build`."""
        files = generate(module, executor=executor, entries=entries)
        prefix = "poetc_shared_"
        files["shared_step.c"] = _functions(prefix, "model", "model_step")
        for e in entries:
            name = f"model_{e.name}"
            files[f"shared_{e.name}.c"] = _functions(f"{prefix}{e.name}_", name, name)
        library = _loaded(self, build(files))
        super().__init__(library, prefix, argument_places(graph), result_places(graph))
        self.image: ImageLayout | None = layout_of(graph)
        self.storage = np.zeros(library.poetc_shared_storage_bytes(), np.uint8)
        library.poetc_shared_init(_address(self.storage))
        self.entries = {
            e.name: SharedFunction(
                library,
                f"{prefix}{e.name}_",
                entry_arguments(e, self.arguments),
                result_places(e.graph),
            )
            for e in entries
        }


def _functions(prefix: str, name: str, step: str) -> str:
    """C that exports, with names that begin with `prefix`, the functions of the model whose names
    begin with `name`, and `step`."""
    return _FUNCTIONS.format(prefix=prefix, name=name, step=step, macro=step.upper())


def _loaded(owner: object, library: Path) -> ctypes.CDLL:
    """The library, for `owner` alone: the loader gives the same file, and so the same arena, to all
    that ask for it, so this one is of a copy."""
    with (
        _kept_in(library.parent),
        tempfile.NamedTemporaryFile(dir=library.parent, prefix="loaded-", suffix=".so") as copy,
    ):
        copy.write(library.read_bytes())
        copy.flush()
        loaded = ctypes.CDLL(copy.name)
    loaded.poetc_shared_storage_bytes.restype = ctypes.c_uint32
    loaded.poetc_shared_init.argtypes = [ctypes.c_void_p]
    loaded.poetc_shared_init.restype = None
    loaded.poetc_shared_text.argtypes = [ctypes.c_int]
    loaded.poetc_shared_text.restype = ctypes.c_char_p
    unload = ctypes.CDLL(None).dlclose
    unload.argtypes = [ctypes.c_void_p]
    weakref.finalize(owner, unload, loaded._handle).atexit = False
    return loaded


def _view(place: TensorPlace, address: int | None) -> np.ndarray | None:
    """The elements in the arena; None for what is elsewhere."""
    if not place.in_arena or address is None:
        return None
    memory = memoryview((ctypes.c_uint8 * place.bytes).from_address(address))
    return np.ndarray(place.shape, dtype_of(place.type.element_type), buffer=memory)


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 8."""
    memory = np.empty(array.nbytes + 8, np.uint8)
    start = -_address(memory) % 8
    bytes = memory[start : start + array.nbytes]
    copy = bytes.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
