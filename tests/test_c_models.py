"""C generated from real models: warnings, width of lines, depth of the stack."""

import subprocess
from pathlib import Path

import pytest
from c_support import COMPILERS, compile_c
from compiled import prepare
from conftest import more

from poetc.backends.c.emit import emit
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, static_ram_bytes
from poetc.ir.graph import graphs

GENERATED = ("model.c", "model_kernels.c", "poetc_math.c", "poetc_store.c", "store_memory.c")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_conv", *more("lenet5", "bert_micro")])
def test_generated_c(name: str, tmp_path: Path) -> None:
    module, _ = prepare(name).schedule(None)
    out = tmp_path / "out"
    emit(module, out)
    for path in [*out.glob("*.c"), *out.glob("*.h")]:
        assert max(map(len, path.read_text().splitlines())) <= 100, path.name
    for compiler in COMPILERS:
        objects = tmp_path / compiler
        objects.mkdir()
        frames: dict[str, int] = {}
        static_bytes = 0
        for source in GENERATED:
            flags = ("-O2", "-c", "-fstack-usage")
            compiled = compile_c([out / source], objects / f"{source[:-2]}.o", compiler, flags)
            size = subprocess.run(["size", compiled], capture_output=True, text=True, check=True)
            if source != "store_memory.c":  # whose table of functions is relocated on a host
                static_bytes += sum(map(int, size.stdout.splitlines()[1].split()[1:3]))
            for line in compiled.with_suffix(".su").read_text().splitlines():
                function, frame, kind = line.split("\t")
                assert kind in ("static", "dynamic,bounded")
                frames[function.rsplit(":", 1)[1]] = int(frame)
        assert static_bytes == static_ram_bytes(graphs(module)[0])
        kernel = max(frame for function, frame in frames.items() if "_kernel_" in function)
        # tanh calls exp, rsqrt calls sqrt: no more than two frames are below a kernel.
        math = 2 * max(frame for function, frame in frames.items() if function.endswith("f"))
        store = sum(
            f for function, f in frames.items() if function in ("poetc_page_in", "read_memory")
        )
        calls = 8 * 4  # return addresses
        assert frames["model_step"] + max(kernel + math, store) + calls <= DEFAULT_STACK_BYTES
