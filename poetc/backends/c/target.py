"""The xDSL target `c`: `xdsl-opt -t c` prints C to read, `poetc --emit=c` writes C to compile."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.target import Target

from poetc.backends.c.emit import generate
from poetc.backends.c.printer import Signature, print_function
from poetc.backends.c.runtime_files import is_runtime
from poetc.ir.graph import graphs


@dataclass(frozen=True)
class CTarget(Target):
    """Prints the generated sources of a graph, one after the other, each after a comment with its
    name; of a module without a graph, its functions.
    """

    name = "c"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        if not graphs(module):
            functions = [op for op in module.ops if isinstance(op, FuncOp) and op.body.blocks]
            texts = [print_function(op, Signature(op.sym_name.data)) for op in functions]
            output.write("\n".join(texts))
            return
        for name, text in generate(module).items():
            if name != "main.c" and not is_runtime(text):
                output.write(f"/* ---- {name} ---- */\n{text}")
