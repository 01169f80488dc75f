"""Random small training steps as poet graphs, for tests of the passes."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp
from poetc.ir.text import parse_module

_UNARY = ("negate", "abs", "sign")
_BINARY = ("add", "subtract", "multiply", "maximum")


@dataclass
class _Kernel:
    head: str
    inplace: list[list[int]]
    tail: str
    operands: list[str]

    def __str__(self) -> str:
        return f"{self.head}{f' inplace {self.inplace}' if self.inplace else ''} {self.tail}"


@dataclass(frozen=True)
class RandomGraph:
    """A graph as text, and what it takes as arguments."""

    text: str
    shapes: tuple[tuple[int, ...], ...]

    def parse(self) -> tuple[ModuleOp, GraphOp]:
        module = parse_module(self.text, "random.mlir")
        return module, graphs(module)[0]

    def arguments(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape).astype(np.float32) for shape in self.shapes]


def _type(size: int | None) -> str:
    return "tensor<f32>" if size is None else f"tensor<{size}xf32>"


@st.composite
def random_graphs(draw: st.DrawFn, most_computes: int = 10) -> RandomGraph:
    """Element-wise kernels, sums and broadcasts; parameters are updated in place at the end."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3, unique=True))
    values: list[tuple[str, int | None]] = []
    arguments: list[str] = []
    params: list[tuple[str, int]] = []
    shapes: list[tuple[int, ...]] = []
    for i in range(draw(st.integers(1, 3))):
        size = draw(st.sampled_from(sizes))
        values.append((f"%x{i}", size))
        arguments.append(f'%x{i}: {_type(size)} {{poet.role = "input"}}')
        shapes.append((size,))
    for i in range(draw(st.integers(0, 2))):
        size = draw(st.sampled_from(sizes))
        values.append((f"%w{i}", size))
        params.append((f"%w{i}", size))
        shapes.append((size,))
    body: list[_Kernel] = []

    def cost() -> str:
        energy, time = draw(st.integers(0, 50)), draw(st.integers(0, 50))
        workspace = draw(st.sampled_from([0, 0, 0, 6, 40]))
        return (
            f"cost #poet.cost<energy_nj = {energy}, time_ns = {time}, "
            f"workspace = {workspace}, flops = 0>"
        )

    def compute(
        operands: list[tuple[str, int | None]],
        results: list[int | None],
        inplace: list[list[int]],
        ops: list[str],
    ) -> None:
        names = [f"%v{len(values) + i}" for i in range(len(results))]
        bind = ", ".join(f"%a{i} = {v} : {_type(s)}" for i, (v, s) in enumerate(operands))
        types = ", ".join(_type(s) for s in results)
        yields = ", ".join(f"%r{i}" for i in range(len(results)))
        head = f'{", ".join(names)} = poet.compute "k{len(body)}" ({bind}) -> ({types})'
        tail = f"{cost()} {{\n{chr(10).join(ops)}\npoet.yield {yields} : {types}\n}}"
        body.append(_Kernel(head, inplace, tail, [v for v, _ in operands]))
        values.extend(zip(names, results, strict=True))

    for _ in range(draw(st.integers(1, most_computes))):
        name, size = draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["unary", "binary", "binary", "two", "sum"]))
        type = _type(size)
        frozen = name.startswith("%w")
        mates = [v for v in values if v[1] == size and v[0] != name]
        if size is None:
            wide = draw(st.sampled_from(sizes))
            op = f"%r0 = stablehlo.broadcast_in_dim %a0, dims = [] : ({type}) -> {_type(wide)}"
            compute([(name, size)], [wide], [], [op])
        elif kind == "sum":
            ops = [
                "%z = stablehlo.constant dense<0.0> : tensor<f32>",
                "%r0 = stablehlo.reduce(%a0 init: %z) applies stablehlo.add across "
                f"dimensions = [0] : ({type}, tensor<f32>) -> tensor<f32>",
            ]
            compute([(name, size)], [None], [], ops)
        elif kind == "two" and mates:
            mate = draw(st.sampled_from(mates))
            pairs = [[0, 0], [1, 1]] if not frozen and not mate[0].startswith("%w") else []
            ops = [
                f"%r0 = stablehlo.add %a0, %a1 : {type}",
                f"%r1 = stablehlo.multiply %a0, %a1 : {type}",
            ]
            compute([(name, size), mate], [size, size], pairs, ops)
        elif kind == "binary" and mates:
            mate = draw(st.sampled_from(mates))
            op = f"%r0 = stablehlo.{draw(st.sampled_from(_BINARY))} %a0, %a1 : {type}"
            compute([(name, size), mate], [size], [] if frozen else [[0, 0]], [op])
        else:
            op = f"%r0 = stablehlo.{draw(st.sampled_from(_UNARY))} %a0 : {type}"
            compute([(name, size)], [size], [] if frozen else [[0, 0]], [op])

    made = [v for v in values if v[0].startswith("%v")]
    results = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2, unique=True))
    updated = 0
    for name, size in params:
        mates = [v for v in values if v[1] == size and v[0] != name and not v[0].startswith("%w")]
        role = 'poet.role = "param"'
        if mates:
            op = f"%r0 = stablehlo.subtract %a0, %a1 : {_type(size)}"
            compute([(name, size), draw(st.sampled_from(mates))], [size], [[0, 0]], [op])
            # The new value must not be read as the gradient of another parameter that shares it.
            results.append(values.pop())
            role += f", poet.updates = {len(results) - 1} : i64"
            values.append(("%gone", -1))
            updated += 1
        arguments.append(f"{name}: {_type(size)} {{{role}}}")
    types = ", ".join(_type(s) for _, s in results)
    # A buffer can be taken over only where nothing needs its content any more.
    needed = {v for v, _ in results}
    for kernel in reversed(body):
        kernel.inplace = [p for p in kernel.inplace if kernel.operands[p[1]] not in needed]
        needed.update(kernel.operands)
    text = (
        f"poet.graph @main({', '.join(arguments)}) -> ({types}) {{\n"
        + "\n".join(map(str, body))
        + f"\npoet.return {', '.join(v for v, _ in results)} : {types}\n}}\n"
    )
    return RandomGraph(text, tuple(shapes))
