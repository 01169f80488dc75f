"""Prints `model_check`, by which a program finds out whether floats are computed as it needs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from poetc.backends.c.text import c_comment
from poetc.ir import mathlib

ABOUT = (
    "Whether the processor and the compiler's options give the bits that the model is to have: "
    "POETC_OK, or POETC_BYTE_ORDER or POETC_FLOAT_... if not. It takes microseconds, and each step "
    "begins with it."
)
"""The purpose of `model_check`, in words for its user."""


def check_function(name: str, symbols: Iterable[str]) -> str:
    """The function for a model, `name`, that calls the mathematical functions `symbols`."""
    used = set(symbols)
    conditions = [
        _condition(short, symbol)
        for short, symbol in mathlib.symbols().items()
        if symbol in used and mathlib.unlike_fused(symbol)
    ]
    functions = ""
    if conditions:
        joined = "\n            || ".join(conditions)
        functions = f"""\
    /* At these arguments, operations that are fused give other bits. */
    if (status == POETC_OK
        && ({joined})) {{
        return POETC_FLOAT_EXPRESSIONS;
    }}
"""
    return f"""\
{c_comment(ABOUT)}
poetc_status {name}_check(void)
{{
    /* Of the runtime that this model is for: with another one it does not link. */
    volatile uint32_t cell = POETC_RUNTIME;
    const poetc_status status = poetc_check_arithmetic(&cell);
{functions}    return status;
}}
"""


def _condition(short: str, symbol: str) -> str:
    """Whether a function has other bits than it should; the interpreter says which."""
    arguments = [np.array([x], np.float32) for x in mathlib.unlike_fused(symbol)]
    unknown = ", ".join(f"poetc_unknown(&cell, {_bits(x)})" for x in arguments)
    value = mathlib.evaluate(short, *arguments)
    return f"poetc_bits({symbol}({unknown})) != {_bits(value)}"


def _bits(value: np.ndarray) -> str:
    return f"0x{int(value.view(np.uint32)[0]):08x}u"
