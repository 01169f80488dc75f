"""Compiles scheduled graphs for a target and writes what comes out of it.

    model.so    a shared library, which needs a linker for the target
    model.o     one relocatable object, likewise
    model.tar   the objects, to be linked elsewhere

All hold the code of the kernels and the program of the virtual machine, and need TVM's runtime.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import ir
from tvm.target import codegen
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from poetc.backends.tvm import HOST, pipeline
from poetc.backends.tvm.module import relax_module
from poetc.backends.tvm.nest import Vectors
from poetc.backends.tvm.tiling import Choice, arrange
from poetc.errors import InputError
from poetc.files import write_whole

_TRIPLES = {"aarch64": "aarch64-linux-gnu", "x86_64": "x86_64-linux-gnu"}
_AARCH64_CPUS = ("cortex-a53", "cortex-a57", "cortex-a72", "cortex-a76")
_ARCHITECTURES = ("x86_64", "aarch64", "arm", "thumb")
"""How triples begin that code is generated for: elsewhere LLVM may abort on a fence of a float that
is no hardware's, or compute with more digits than float32 has (i686)."""
SUFFIXES = (".so", ".o", ".tar")


@dataclass(frozen=True)
class Machine:
    """The machine that code is generated for. `linkers` are commands to try, for shared
    libraries."""

    name: str
    triple: str
    target: tvm.target.Target
    linkers: tuple[tuple[str, ...], ...]

    @property
    def vectors(self) -> Vectors:
        """The widest registers; every 64-bit processor has those of 16 bytes."""
        if self._has("avx512f"):
            return Vectors(16, 32)
        return Vectors(8 if self._has("avx2") else 4, 16 if self._is_x86 else 32)

    @property
    def _is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    def _has(self, feature: str) -> bool:
        return self._is_x86 and bool(codegen.target_has_features(feature, self.target))


_EXTENSIONS = {
    **dict.fromkeys(("avx", "avx2", "fma", "f16c", "bmi2", "gfni", "vaes")),
    **dict.fromkeys(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    **dict.fromkeys(("avx512ifma", "avx512vbmi")),
    "bmi": "bmi1",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avxvnni": "avx_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512bitalg": "avx512_bitalg",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
}
"""LLVM's names of the extensions of x86-64 that change arithmetic, with those of Linux (None: the
same)."""
_CPUINFO = Path("/proc/cpuinfo")


def host_options() -> dict[str, object]:
    """LLVM's options for this machine: the model of its processor, less the extensions that are
    switched off here.

    LLVM takes all extensions that the model has, but a virtual machine may hide some of them, and
    using those ends the process. Where the system does not list them, the model is believed.
    """
    options: dict[str, object] = {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()}
    flags = _flags(_CPUINFO.read_text()) if _CPUINFO.exists() else frozenset()
    if not flags:
        return options
    model = codegen.llvm_get_cpu_features(tvm.target.Target(options))
    known = sorted(model & _EXTENSIONS.keys())
    hidden = [name for name in known if (_EXTENSIONS[name] or name) not in flags]
    return options | {"mattr": [f"-{name}" for name in hidden]}


def _flags(cpuinfo: str) -> frozenset[str]:
    """The extensions that Linux lists for the first x86 processor; none on other processors."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def machine(text: str = HOST) -> Machine:
    """The machine that `--target` names: `host`, `ARCH`, a CPU, or `TRIPLE[:CPU]`.

    Raises InputError for one that LLVM does not know.
    """
    if text == HOST:
        linkers = (("cc",), ("gcc",), ("clang",))
        target = tvm.target.Target(host_options())
        return Machine(text, codegen.llvm_get_system_triple(), target, linkers)
    triple, _, cpu = text.partition(":")
    if triple in _AARCH64_CPUS:
        triple, cpu = "aarch64", triple
    triple = _TRIPLES.get(triple, triple)
    if "-" not in triple or not codegen.llvm_is_valid_cpu("generic", triple):
        raise InputError(
            f"--target={text}: LLVM has no such target; known are host, "
            f"{', '.join(_TRIPLES)}, {', '.join(_AARCH64_CPUS)}, and TRIPLE:CPU"
        )
    if not triple.startswith(_ARCHITECTURES):
        raise InputError(
            f"--target={text}: TVM code is for {', '.join(_ARCHITECTURES)}, not for "
            f"{triple.partition('-')[0]}; --emit=c is for any processor"
        )
    if cpu and not codegen.llvm_is_valid_cpu(cpu, triple):
        raise InputError(f"--target={text}: LLVM has no processor {cpu} for {triple}")
    options = {"kind": "llvm", "mtriple": triple} | ({"mcpu": cpu} if cpu else {})
    linkers = ((f"{triple}-gcc",), (f"{triple}-ld",), ("clang", f"--target={triple}"))
    return Machine(text, triple, tvm.target.Target(options), linkers)


def compile_module(module: ir.IRModule, on: Machine) -> tvm.runtime.Executable:
    """An executable of the virtual machine that does what the module says, in its order."""
    pipeline.register()
    return tvm.compile(module, on.target, relax_pipeline=pipeline.NAME, tir_pipeline=pipeline.NAME)


def compile_graph(
    module: ModuleOp, on: Machine, choose: Callable[[FuncOp], Choice | None] = lambda _: None
) -> tvm.runtime.Executable:
    """The executable of a scheduled and planned graph, its kernels arranged for the machine: by
    rule, or as `choose` says of a kernel."""
    return compile_module(relax_module(module, lambda f: arrange(f, on.vectors, choose(f))), on)


def check_output(output: str) -> None:
    """Raises InputError for a file name that does not say what to write."""
    if Path(output).suffix not in SUFFIXES:
        raise InputError(f"-o {output}: --emit=tvm writes {', '.join(SUFFIXES)}")


def write(executable: tvm.runtime.Executable, output: str, on: Machine) -> None:
    """Writes a library or objects, as the suffix of `output` says; all of it or nothing.

    Raises InputError if there is no linker for the machine, or it fails.
    """
    check_output(output)
    suffix = Path(output).suffix
    with tempfile.TemporaryDirectory() as directory:
        made: list[str] = []

        def keep(_: str, objects: Sequence[str]) -> None:
            made.extend(objects)

        executable.export_library(output, fcompile=keep, workspace_dir=directory)
        if suffix == ".tar":
            content = _tar(made)
        else:
            linked = Path(directory) / f"linked{suffix}"
            _link(made, linked, on)
            content = linked.read_bytes()
    write_whole(output, content)


def _link(objects: Sequence[str], output: Path, on: Machine) -> None:
    found = next((words for words in on.linkers if shutil.which(words[0])), None)
    if found is None:
        names = " or ".join(words[0] for words in on.linkers)
        raise InputError(
            f"no linker for {on.name} ({names}) is installed; -o with .tar writes the objects"
        )
    flags = ("-shared",) if output.suffix == ".so" else ("-r",)
    if not found[0].endswith("-ld"):
        flags += ("-nostdlib",) if output.suffix == ".o" else ()
    command = [*found, *flags, "-o", str(output), *objects]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        # The message of a linker comes before that of its driver.
        reason = "; ".join(lines[-3:])
        raise InputError(
            f"{found[0]} cannot link for {on.name}: {reason}; -o with .tar writes the objects"
        )


def _tar(objects: Sequence[str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in objects:
            # Without times and owners: the same program gives the same bytes.
            info = tarfile.TarInfo(Path(path).name)
            info.size = Path(path).stat().st_size
            with Path(path).open("rb") as file:
                archive.addfile(info, file)
    return data.getvalue()
