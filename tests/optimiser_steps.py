"""Steps of a two-layer network with momentum and Adam, written by hand in StableHLO."""

from __future__ import annotations

X, Y = (4, 8), (4, 2)
W1, W2 = (8, 16), (16, 2)


class Writer:
    """Lines of StableHLO; each method returns the name of its result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def add(self, name: str, shape: tuple[int, ...]) -> str:
        self.shapes[name] = shape
        return name

    def result(self, text: str, shape: tuple[int, ...]) -> str:
        name = f"%{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return self.add(name, shape)

    def fill(self, value: float | str, shape: tuple[int, ...]) -> str:
        """A number, or a tensor with one element, as a tensor of `shape`."""
        if isinstance(value, float):
            return self.result(f"stablehlo.constant dense<{value:e}> : {type_(shape)}", shape)
        text = f"stablehlo.broadcast_in_dim {value}, dims = []"
        return self.result(f"{text} : (tensor<f32>) -> {type_(shape)}", shape)

    def op(self, name: str, *operands: str) -> str:
        shape = self.shapes[operands[0]]
        return self.result(f"stablehlo.{name} {', '.join(operands)} : {type_(shape)}", shape)

    def scaled(self, factor: float, operand: str) -> str:
        return self.op("multiply", self.fill(factor, self.shapes[operand]), operand)

    def dot(self, a: str, b: str, contract: tuple[int, int]) -> str:
        left, right = self.shapes[a], self.shapes[b]
        shape = (left[1 - contract[0]], right[1 - contract[1]])
        dims = f"contracting_dims = [{contract[0]}] x [{contract[1]}]"
        types = f"({type_(left)}, {type_(right)}) -> {type_(shape)}"
        return self.result(f"stablehlo.dot_general {a}, {b}, {dims} : {types}", shape)

    def total(self, operand: str) -> str:
        zero = self.fill(0.0, ())
        types = f"({type_(self.shapes[operand])}, tensor<f32>) -> tensor<f32>"
        reduce = f"stablehlo.reduce({operand} init: {zero}) applies stablehlo.add across"
        return self.result(f"{reduce} dimensions = [0, 1] : {types}", ())


def type_(shape: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}f32>"


def _gradients(w: Writer) -> tuple[str, list[str]]:
    """The loss, and its gradients with respect to both weights."""
    hidden = w.op("tanh", w.dot("%x", "%w1", (1, 0)))
    error = w.op("subtract", w.dot(hidden, "%w2", (1, 0)), "%y")
    loss = w.total(w.op("multiply", error, error))
    d_out = w.scaled(2.0, error)
    slope = w.op("subtract", w.fill(1.0, (4, 16)), w.op("multiply", hidden, hidden))
    d_hidden = w.op("multiply", w.dot(d_out, "%w2", (1, 1)), slope)
    return loss, [w.dot("%x", d_hidden, (0, 0)), w.dot(hidden, d_out, (0, 0))]


def momentum() -> str:
    """w -= 0.1 m, m = 0.9 m + g."""
    w, arguments = _arguments(("%m1", W1), ("%m2", W2))
    loss, gradients = _gradients(w)
    weights, state = [], []
    for at, gradient in enumerate(gradients, 1):
        state.append(w.op("add", w.scaled(0.9, f"%m{at}"), gradient))
        weights.append(w.op("subtract", f"%w{at}", w.scaled(0.1, state[-1])))
    return _function(w, arguments, [loss, *weights, *state])


def adam(clip: bool = False) -> str:
    """Adam with a bias correction that depends on the number of the step, an argument; with `clip`
    gradients are scaled by the norm of them all."""
    w, arguments = _arguments(("%m1", W1), ("%m2", W2), ("%v1", W1), ("%v2", W2), ("%t", ()))
    loss, gradients = _gradients(w)
    if clip:
        squares = [w.total(w.op("multiply", g, g)) for g in gradients]
        factor = w.op("rsqrt", w.op("add", *squares))
        gradients = [w.op("multiply", g, w.fill(factor, w.shapes[g])) for g in gradients]
    step = w.op("add", "%t", w.fill(1.0, ()))
    bias = w.op("subtract", w.fill(1.0, ()), w.op("power", w.fill(0.9, ()), step))
    weights, first, second = [], [], []
    for at, gradient in enumerate(gradients, 1):
        shape = w.shapes[gradient]
        first.append(w.op("add", w.scaled(0.9, f"%m{at}"), w.scaled(0.1, gradient)))
        square = w.op("multiply", gradient, gradient)
        second.append(w.op("add", w.scaled(0.99, f"%v{at}"), w.scaled(0.01, square)))
        mean = w.op("divide", first[-1], w.fill(bias, shape))
        root = w.op("add", w.op("sqrt", second[-1]), w.fill(1e-6, shape))
        weights.append(w.op("subtract", f"%w{at}", w.scaled(0.01, w.op("divide", mean, root))))
    return _function(w, arguments, [loss, *weights, *first, *second, step])


def _arguments(*state: tuple[str, tuple[int, ...]]) -> tuple[Writer, list[tuple[str, int | None]]]:
    """The writer, and each argument with the result that is its new value."""
    w = Writer()
    updated = [("%w1", W1), ("%w2", W2), *state]
    for name, shape in (*updated, ("%x", X), ("%y", Y)):
        w.add(name, shape)
    return w, [*((name, at) for at, (name, _) in enumerate(updated, 1)), ("%x", None), ("%y", None)]


def _function(w: Writer, arguments: list[tuple[str, int | None]], results: list[str]) -> str:
    def argument(name: str, at: int | None) -> str:
        alias = "" if at is None else f" {{tf.aliasing_output = {at} : i32}}"
        return f"{name}: {type_(w.shapes[name])}{alias}"

    types = ", ".join(type_(w.shapes[name]) for name in results)
    return "\n".join(
        [
            f"func.func public @main({', '.join(argument(*a) for a in arguments)}) -> ({types}) {{",
            *w.lines,
            f"  return {', '.join(results)} : {types}",
            "}",
            "",
        ]
    )
