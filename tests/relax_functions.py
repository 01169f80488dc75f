"""Training functions as Relax users make them, and what it takes to run them."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
from __future__ import annotations

import ctypes
import inspect
import math
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("tvm", reason="poetc.tvm is optional: pip install 'poetc[tvm]'")

import tvm
from tvm import relax
from tvm.relax.training import SetupTrainer
from tvm.relax.training.loss import CrossEntropyLoss, MSELoss
from tvm.relax.training.optimizer import SGD, MomentumSGD

nn = relax.op.nn


def _module_of(thing: Any, file: str | None = None, found: Any = inspect.getmodule) -> Any:
    return (
        sys.modules.get(thing.f_globals["__name__"])
        if inspect.isframe(thing)
        else found(thing, file)
    )


# For every function of a script TVM looks for the source of all frames of the stack: pytest's are
# many, those of a thread are few. For a frame Python would look at the files of all modules.
with mock.patch.object(inspect, "getmodule", _module_of):
    reader = threading.Thread(target=import_module, args=("relax_scripts",))
    reader.start()
    reader.join()


@dataclass(frozen=True)
class Training:
    """A module, the name of a training function in it, and arguments."""

    module: tvm.IRModule
    function: str
    arguments: tuple[Any, ...]


def _tensor(*shape: int, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


class Backbone:
    """Builds a function `backbone` as SetupTrainer wants it."""

    def __init__(self, x: relax.TensorType) -> None:
        self.builder = relax.BlockBuilder()
        self.x = relax.Var("x", x)
        self.params: list[relax.Var] = []
        self.states: list[relax.Var] = []
        self.new_states: list[relax.Expr] = []

    def param(self, *shape: int) -> relax.Var:
        self.params.append(relax.Var(f"w{len(self.params)}", _tensor(*shape)))
        return self.params[-1]

    def state(self, *shape: int) -> relax.Var:
        self.states.append(relax.Var(f"s{len(self.states)}", _tensor(*shape)))
        return self.states[-1]

    def __call__(self, expr: relax.Expr) -> relax.Var:
        return self.builder.emit(expr)

    def dense(self, x: relax.Expr, inputs: int, outputs: int) -> relax.Var:
        product = self(relax.op.matmul(x, self.param(inputs, outputs)))
        return self(relax.op.add(product, self.param(outputs)))

    def conv(self, x: relax.Expr, inputs: int, outputs: int) -> relax.Var:
        return self(nn.conv2d(x, self.param(outputs, inputs, 3, 3), padding=1))

    def batch_norm(self, x: relax.Expr, channels: int) -> relax.Var:
        scale, shift = self.param(channels), self.param(channels)
        mean, variance = self.state(channels), self.state(channels)
        whole = self(nn.batch_norm(x, scale, shift, mean, variance, axis=1))
        self.new_states += [self(relax.TupleGetItem(whole, 1)), self(relax.TupleGetItem(whole, 2))]
        return self(relax.TupleGetItem(whole, 0))

    def module(self, body: Callable[[Backbone, relax.Var], relax.Expr]) -> tvm.IRModule:
        with self.builder.function("backbone"):
            with self.builder.dataflow():
                output = self.builder.emit_output(body(self, self.x))
                states = [self.builder.emit_output(state) for state in self.new_states]
            result = relax.Tuple([output, *states]) if states else output
            self.builder.emit_func_output(result, [self.x, *self.params, *self.states])
        return self.builder.get().with_attrs(
            {"param_num": len(self.params), "state_num": len(self.states)}
        )

    def layer_norm(self, x: relax.Expr, width: int) -> relax.Var:
        return self(nn.layer_norm(x, self.param(width), self.param(width), axes=[-1]))


def _mlp(b: Backbone, x: relax.Var) -> relax.Expr:
    """Three hidden layers on a batch of 256 rows."""
    h = b(nn.relu(b.dense(x, 32, 64)))
    for _ in range(2):
        h = b(relax.op.tanh(b.dense(h, 64, 64)))
    return b.dense(h, 64, 10)


def _convnet(b: Backbone, x: relax.Var) -> relax.Expr:
    """A residual block with batch norm, then pooling and a dense layer."""
    h = b.conv(x, 1, 8)
    inner = b(nn.relu(b.batch_norm(b.conv(h, 8, 8), 8)))
    h = b(nn.relu(b(relax.op.add(h, b.conv(inner, 8, 8)))))
    h = b(nn.max_pool2d(h, pool_size=4, strides=4))
    return b.dense(b(relax.op.reshape(h, (4, 8 * 16))), 128, 10)


def _transformer(b: Backbone, x: relax.Var) -> relax.Expr:
    """A block with two heads of attention, on a batch of four sequences of 32."""
    n = b.layer_norm(x, 32)

    def heads(t: relax.Expr) -> relax.Var:
        split = b(relax.op.reshape(t, (4, 32, 2, 16)))
        return b(relax.op.permute_dims(split, [0, 2, 1, 3]))

    q, k, v = (heads(b.dense(n, 32, 32)) for _ in range(3))
    scores = b(relax.op.matmul(q, b(relax.op.permute_dims(k, [0, 1, 3, 2]))))
    weights = b(nn.softmax(b(relax.op.multiply(scores, relax.const(0.25)))))
    mixed = b(relax.op.permute_dims(b(relax.op.matmul(weights, v)), [0, 2, 1, 3]))
    h = b(relax.op.add(x, b.dense(b(relax.op.reshape(mixed, (4, 32, 32))), 32, 32)))
    wide = b(nn.silu(b.dense(b.layer_norm(h, 32), 32, 128)))
    return b(relax.op.add(h, b.dense(wide, 128, 32)))


def _trained(module: tvm.IRModule, loss, optimizer, output: relax.TensorType, target) -> Training:
    module = SetupTrainer(loss, optimizer, [output, target])(module)
    name = "backbone_loss_adjoint"
    return Training(module, name, arguments_of(module[name]))


def only(module: tvm.IRModule, *names: str) -> tvm.IRModule:
    """The module without other Relax functions, and without what those alone call."""
    kept = {
        v: f
        for v, f in module.functions.items()
        if not isinstance(f, relax.Function) or v.name_hint in names
    }
    return relax.transform.DeadCodeElimination(list(names))(tvm.IRModule(kept))


def arguments_of(function: relax.Function, classes: int = 10) -> tuple[Any, ...]:
    """Random arguments: labels for integers, positive numbers for running variances."""
    random = np.random.default_rng(0)

    def make(type_) -> Any:
        if isinstance(type_, relax.TupleType):
            return tuple(make(field) for field in type_.fields)
        shape = [int(extent) for extent in type_.shape.values]
        if str(type_.dtype).startswith("int"):
            return tvm.runtime.tensor(random.integers(0, classes, shape).astype(str(type_.dtype)))
        scale = 1 / np.sqrt(max(1, shape[0] if len(shape) > 1 else 4))
        values = random.standard_normal(shape) * scale
        return tvm.runtime.tensor(np.asarray(values, "float32"))

    return tuple(make(parameter.ty) for parameter in function.params)


def mlp() -> Training:
    module = Backbone(_tensor(256, 32)).module(_mlp)
    target = _tensor(256, dtype="int64")
    loss = CrossEntropyLoss(reduction="mean")
    return _trained(module, loss, MomentumSGD(0.1, 0.9), _tensor(256, 10), target)


def convnet() -> Training:
    module = Backbone(_tensor(4, 1, 16, 16)).module(_convnet)
    target = _tensor(4, dtype="int64")
    return _trained(module, CrossEntropyLoss("mean"), SGD(0.1), _tensor(4, 10), target)


def transformer() -> Training:
    module = Backbone(_tensor(4, 32, 32)).module(_transformer)
    output = _tensor(4, 32, 32)
    return _trained(module, MSELoss("mean"), MomentumSGD(0.1, 0.9), output, output)


TRAININGS = {"mlp": mlp, "convnet": convnet, "transformer": transformer}


@dataclass
class Run:
    """What a function did: the bits of all results, what it called, and what memory it took.

    `heap_bytes` is the most heap that it had at any of its calls, beyond what was there before; nan
    unless that was asked for.
    """

    bits: list[bytes]
    calls: list[str]
    allocated_bytes: int
    heap_bytes: float

    @property
    def kernels(self) -> list[str]:
        return [name for name in self.calls if not name.startswith(("vm.", "runtime.", "poetc."))]


QUICK = {"kind": "llvm", "opt-level": 0}
"""A target for which code is generated in no time, and not fast."""


def run(
    module: tvm.IRModule,
    function: str,
    arguments: Sequence[Any],
    pipeline: Any = "poetc",
    target: Any = "llvm",
    heap: bool = False,
) -> Run:
    """Compiles a module and calls a function of it; looks at the `heap` at each of its calls, which
    takes long."""
    executable = tvm.compile(module, tvm.target.Target(target), relax_pipeline=pipeline)
    machine = relax.VirtualMachine(executable, tvm.cpu(), memory_cfg="naive")
    done = Run([], [], 0, 0 if heap else math.nan)

    def look(_: Any, name: str, before: bool, __: Any, *operands: Any) -> int:
        if not before:
            if heap:
                done.heap_bytes = max(done.heap_bytes, heap_bytes())
        else:
            done.calls.append(name)
            if name == "vm.builtin.alloc_storage":
                done.allocated_bytes += int(np.prod(operands[1], dtype=np.int64))
        return 0

    if heap:
        machine[function](*arguments)  # once for what is allocated at first and then kept
    machine.set_instrument(look)
    start = heap_bytes()
    done.bits = bits(machine[function](*arguments))
    done.heap_bytes -= start
    return done


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


_mallinfo = ctypes.CDLL(None).mallinfo2
_mallinfo.restype = _MallocInfo


def heap_bytes() -> int:
    """Bytes that are allocated on the heap now."""
    found = _mallinfo()
    return found.uordblks + found.hblkhd


def bits(value: Any) -> list[bytes]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy().tobytes()]
    return [part for field in value for part in bits(field)]
