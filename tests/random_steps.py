"""Random training steps, as StableHLO."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Program:
    """A random training step, and the shapes of its arguments."""

    text: str
    shapes: tuple[tuple[int, ...], ...]


def type_of(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, 'f32')))}>"


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Chains of contractions, element-wise and moving operations on parameters and an input."""
    batch, width = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    shapes: list[tuple[int, ...]] = [(batch, width)]
    lines: list[str] = []
    value, shape = "%a0", (batch, width)
    kept: list[tuple[str, tuple[int, ...]]] = [(value, shape)]

    def dot(name: str, lhs: str, rhs: str, over: str, *types: tuple[int, ...]) -> None:
        left, right, result = map(type_of, types)
        lines.append(
            f"{name} = stablehlo.dot_general {lhs}, {rhs}, contracting_dims = {over} : "
            f"({left}, {right}) -> {result}"
        )

    for layer in range(draw(st.integers(1, 3))):
        out = draw(st.integers(2, 5))
        transposed = draw(st.booleans())
        weight = (out, shape[1]) if transposed else (shape[1], out)
        index = len(shapes)
        shapes.append(weight)
        w = f"%a{index}"
        if draw(st.booleans()):
            # A copy of the parameter, turned around or squared, is what is read.
            w = f"%r{layer}"
            lines.append(f"{w} = stablehlo.reverse %a{index}, dims = [0, 1] : {type_of(weight)}")
        if draw(st.booleans()):
            lines.append(f"%q{layer} = stablehlo.multiply {w}, %a{index} : {type_of(weight)}")
            w = f"%q{layer}"
        over = "[1] x [1]" if transposed else "[1] x [0]"
        dot(f"%d{layer}", value, w, over, shape, weight, (batch, out))
        value, shape = f"%d{layer}", (batch, out)
        if draw(st.booleans()):
            lines.append(f"%t{layer} = stablehlo.tanh {value} : {type_of(shape)}")
            value = f"%t{layer}"
        if draw(st.booleans()):
            lines.append(f"%p{layer} = stablehlo.add {value}, %d{layer} : {type_of(shape)}")
            value = f"%p{layer}"
        kept.append((value, shape))
    results: list[tuple[str, tuple[int, ...]]] = [kept[-1]]
    for layer, index in enumerate(range(1, len(shapes))):
        (before, low), (after, high) = kept[layer], kept[layer + 1]
        weight = shapes[index]
        first, second = (after, before) if weight == (high[1], low[1]) else (before, after)
        left, right = (high, low) if weight == (high[1], low[1]) else (low, high)
        dot(f"%g{index}", first, second, "[0] x [0]", left, right, weight)
        gradient = f"%g{index}"
        if draw(st.booleans()):
            lines.append(f"%s{index} = stablehlo.multiply %g{index}, %a{index} : {type_of(weight)}")
            gradient = f"%s{index}"
        lines.append(f"%n{index} = stablehlo.subtract %a{index}, {gradient} : {type_of(weight)}")
        results.append((f"%n{index}", weight))
        if draw(st.booleans()):
            # The gradient is a result, too: then it is computed whole.
            results.append((gradient, weight))
    where = {name: i for i, (name, _) in enumerate(results)}
    arguments = ["%a0: " + type_of(shapes[0])] + [
        f"%a{i}: {type_of(shapes[i])} {{tf.aliasing_output = {where[f'%n{i}']} : i32}}"
        for i in range(1, len(shapes))
    ]
    types = ", ".join(type_of(each) for _, each in results)
    body = "\n  ".join(lines)
    text = (
        f"func.func public @main({', '.join(arguments)}) -> ({types}) {{\n  {body}\n"
        f"  return {', '.join(name for name, _ in results)} : {types}\n}}\n"
    )
    return Program(text, tuple(shapes))
