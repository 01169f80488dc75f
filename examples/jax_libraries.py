"""Training steps with flax, equinox, optax and haiku, exported for poetc.

    pip install 'poetc[jax]' flax equinox optax dm-haiku
    python examples/jax_libraries.py DIRECTORY

writes DIRECTORY/NAME.mlir and DIRECTORY/NAME.npz for each NAME: nnx, linen, equinox, optax, haiku.
Then

    poetc DIRECTORY/NAME.mlir --ram=7200 --emit=c -o DIRECTORY/NAME
    make -C DIRECTORY/NAME
    python examples/run_c.py DIRECTORY/NAME DIRECTORY/NAME.npz

Each function returns a step and its arguments. What the step changes comes first in both arguments
and results, as pytrees of the same structure; poetc finds out by that which tensor is which.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import equinox as eqx  # pyright: ignore[reportMissingImports]
    import haiku as hk  # pyright: ignore[reportMissingImports]
    import jax  # pyright: ignore[reportMissingImports]
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
    import optax  # pyright: ignore[reportMissingImports]
    from flax import linen, nnx  # pyright: ignore[reportMissingImports]
    from flax.training.train_state import TrainState  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    print(f"{error}: pip install 'poetc[jax]' flax equinox optax dm-haiku", file=sys.stderr)
    sys.exit(2)

from poetc.frontends.jax import export

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (8, 20))
LABELS = jnp.array([0, 1, 2, 3, 0, 1, 2, 3])


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def nnx_step():
    """Modules and optimiser are split into a graph, which is fixed, and their state. The count of
    dropout is in the state."""

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(20, 12, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)
            self.out = nnx.Linear(12, 4, rngs=rngs)

        def __call__(self, x):
            return self.out(self.dropout(nnx.relu(self.hidden(x))))

    model = Net(nnx.Rngs(0))
    graph, state = nnx.split((model, nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)))

    def step(state, x, labels):
        model, optimiser = nnx.merge(graph, state)
        loss, gradients = nnx.value_and_grad(lambda m: cross_entropy(m(x), labels))(model)
        optimiser.update(model, gradients)
        return nnx.state((model, optimiser)), loss

    return step, (state, X, LABELS)


def linen_step():
    """A TrainState is an argument as it is."""
    model = linen.Sequential([linen.Dense(12), linen.gelu, linen.Dense(4)])
    params = model.init(KEY, X)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-2))

    def step(state, x, labels):
        def loss_of(params):
            return cross_entropy(state.apply_fn({"params": params}, x), labels)

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    return step, (state, X, LABELS)


def equinox_step():
    """The arrays of the model are partitioned from the rest, which no step changes."""
    arrays, static = eqx.partition(eqx.nn.MLP(20, 4, 12, 1, key=KEY), eqx.is_array)
    optimiser = optax.adam(1e-2)

    def step(arrays, state, x, labels):
        def loss_of(arrays):
            return cross_entropy(jax.vmap(eqx.combine(arrays, static))(x), labels)

        loss, gradients = jax.value_and_grad(loss_of)(arrays)
        updates, state = optimiser.update(gradients, state)
        return eqx.apply_updates(arrays, updates), state, loss

    return step, (arrays, optimiser.init(arrays), X, LABELS)


def optax_step():
    """Gradients of two steps are averaged before an update, and those that are not finite are left
    out: the counters are integers of the state."""
    params = {"w": 0.3 * jax.random.normal(KEY, (20, 4)), "b": jnp.zeros(4)}
    optimiser = optax.MultiSteps(optax.apply_if_finite(optax.adam(1e-2), 5), 2)

    def step(params, state, x, labels):
        def loss_of(params):
            return cross_entropy(x @ params["w"] + params["b"], labels)

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = optimiser.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step, (params, optimiser.init(params), X, LABELS)


def haiku_step():
    """The running statistics of batch norm are a state beside the parameters."""

    def forward(x):
        x = hk.Linear(12, with_bias=False)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, is_training=True)
        return hk.Linear(4)(jax.nn.relu(x))

    net = hk.without_apply_rng(hk.transform_with_state(forward))
    params, state = net.init(KEY, X)

    def step(params, state, x, labels):
        def loss_of(params):
            logits, changed = net.apply(params, state, x)
            return cross_entropy(logits, labels), changed

        (loss, changed), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)
        return params, changed, loss

    return step, (params, state, X, LABELS)


STEPS = {
    "nnx": nnx_step,
    "linen": linen_step,
    "equinox": equinox_step,
    "optax": optax_step,
    "haiku": haiku_step,
}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/jax_libraries.py DIRECTORY")
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in STEPS.items():
        step, arguments = make()
        written = export(step, arguments, directory / name, results=True)
        print(f"{name}: {len(written.names)} arguments, {len(written.updates)} of them updated")


if __name__ == "__main__":
    main()
