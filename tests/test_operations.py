"""Every operation that is read works everywhere: reader, interpreter, kernels, generated C, XLA."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiled import FLAGS, SANITIZE, bring, build, run
from conftest import ALL
from kernel_harness import Array, Case, check, interpret, module_of, same_bits
from ml_dtypes import finfo
from operation_instances import MAKERS, instances
from xdsl.ir import SSAValue

from poetc.interpreter import run_func
from poetc.ir import stablehlo as hlo
from poetc.ir.text import module_text, parse_module
from poetc.ir.types import is_float
from poetc.ir.types import narrowed as narrowed_type
from poetc.simplify.narrow import narrow_integers
from tests.models.make_results import xla_results

_AT_ONCE = 1000
"""Instances in one step: finding places for many more takes too long."""

OPERATIONS = [op for dialect in (hlo.StableHLO, hlo.CHLO, hlo.Resume) for op in dialect.operations]


@cache
def cases() -> tuple[Case, ...]:
    """All instances."""
    return tuple(case for op in MAKERS for case in instances(op))


@cache
def some_cases(every: int = 9) -> tuple[Case, ...]:
    """One instance of each operation and its element types, and of the others one of `every` so
    many; all with POETC_ALL_STEPS=1."""
    kinds: set[object] = set()
    chosen: list[Case] = []
    for number, case in enumerate(cases()):
        values = [(op.name, *op.operands, *op.results) for op in case.block.ops]
        kind = tuple((name, *map(hlo.element_type_of, of)) for name, *of in values)
        if ALL or kind not in kinds or number % every == 0:
            chosen.append(case)
        kinds.add(kind)
    return tuple(chosen)


def is_for_xla(case: Case) -> bool:
    """Whether XLA has the operation, and does not abort on it, as on one of rank 0."""
    ops = list(case.block.ops)
    if isinstance(ops[0], hlo.SelectAndScatterOp):
        return hlo.shape_of(ops[0].operand) != ()
    return not any(op.name.startswith("resume.") for op in ops)


@pytest.mark.slow
def test_every_operation_has_instances():
    # Loops and branches: test_control.py. Composites: test_bytecode.py.
    kinds = hlo.ControlOp | hlo.ReturnOp | hlo.CompositeOp
    others = {op for op in OPERATIONS if issubclass(op, kinds)}
    assert set(MAKERS) == set(OPERATIONS) - others
    for op in MAKERS:
        found = {
            t
            for case in instances(op)
            for o in case.block.ops
            if type(o) is op
            for t in (hlo.element_type_of(v) for v in (*o.operands, *o.results))
        }
        assert found, op.name
        assert found.issuperset(getattr(op, "ELEMENTS", ())), op.name


@pytest.mark.slow
def test_kernels_do_what_the_interpreter_does():
    plain = [c for c in some_cases(every=3) if not any(hlo.is_expanded(op) for op in c.block.ops)]
    check(plain)


@pytest.mark.slow
def test_wide_integers_are_narrowed_without_changing_a_value():
    """With arguments that are known, so that what can be narrowed is."""
    narrowed = 0
    for case in (case for op in MAKERS for case in instances(op)):
        ops = list(case.block.ops)
        if not any(is_wide(v) for op in ops for v in (*op.operands, *op.results)):
            continue
        last = ops[-1]
        for index, value in enumerate(list(last.operands)):
            if is_wide(value):
                low = hlo.ConvertOp(value, hlo.i32)
                case.block.insert_op_before(low, last)
                last.operands[index] = low.result
        for argument, value in zip(case.block.args, case.args, strict=True):
            known = hlo.ConstantOp(value)
            case.block.insert_op_before(known, ops[0])
            argument.replace_all_uses_with(known.result)
        expected = interpret(case.block, case.args)
        before = wide_results(case)
        narrow_integers(case.block)
        narrowed += wide_results(case) < before
        for op in case.block.ops:
            op.verify()
        for a, b in zip(interpret(case.block, case.args), expected, strict=True):
            check_bits(a, b, case)
    assert narrowed > 50


def is_wide(value: SSAValue) -> bool:
    element = hlo.element_type_of(value)
    return narrowed_type(element) != element


def wide_results(case: Case) -> int:
    return sum(is_wide(value) for op in case.block.ops for value in op.results)


@pytest.mark.slow
def test_xla_does_what_the_interpreter_does():
    pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
    every = [case for case in some_cases() if is_for_xla(case)]
    for start in range(0, len(every), _AT_ONCE):
        chosen = every[start : start + _AT_ONCE]
        module, arguments = module_of(chosen)
        text = module_text(module)
        found = run_func(parse_module(text), arguments)
        for case, a, b in zip(chosen, found, xla_results(text, arguments), strict=True):
            assert_close(a, b, str(case))


def assert_close(found: Array, expected: Array, message: str) -> None:
    """Equal, floats within a few roundings relative to the largest element."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), message
    if is_float(found.dtype):
        # Of 16 bits: XLA rounds where it stores.
        rounding = max(2e-6, 4 * float(finfo(found.dtype).eps) if found.itemsize == 2 else 0.0)
        a, b = found.astype(np.float32), expected.astype(np.float32)
        scale = np.max(np.abs(b), initial=0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=0, atol=rounding * scale, err_msg=message)
    else:
        np.testing.assert_array_equal(found, expected, err_msg=message)


@pytest.mark.slow
def test_generated_code_does_what_the_interpreter_does(tmp_path: Path):
    """Many instances are one step, so that there are few programs to build."""
    for start in range(0, len(some_cases()), _AT_ONCE):
        chosen, directory = some_cases()[start : start + _AT_ONCE], tmp_path / str(start)
        module, arguments = module_of(chosen)
        module = parse_module(module_text(module))
        like = run_func(module, arguments)
        scheduled, _ = bring("operations", module, arguments, like).schedule(None)
        program = build(scheduled, directory, *SANITIZE)
        found = run(program, arguments, like)
        for case, a, b in zip(chosen, found, like, strict=True):
            # The meaning of CHLO is rounded once; it is expanded into arithmetic.
            is_near = case.note.startswith("chlo.")
            assert_close(a, b, str(case)) if is_near else check_bits(a, b, case)
        sources = sorted(str(path) for path in directory.glob("*.c"))
        subprocess.run(["clang", *FLAGS, "-fsyntax-only", *sources], check=True)


def check_bits(found: Array, expected: Array, case: Case) -> None:
    assert same_bits(found, expected), f"{found} expected {expected}: {case}"
