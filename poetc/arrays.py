"""Arrays of NumPy, JAX and PyTorch, and numbers, as the arrays of NumPy that a step takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from poetc.errors import InputError
from poetc.ir.types import BFLOAT16, rounded


def as_numpy(value: Any, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """`value` as an array of that shape and type, without a copy where its library allows that.

    Numbers of Python, also in lists, become the type that is needed, and float32 is rounded to a
    float of 16 bits; else an array must have the type. Raises InputError, with the `name`, for
    another shape or type.
    """
    array = rounded(_array(value, name, dtype), dtype)
    if array.shape != shape or array.dtype != dtype:
        hint = ""
        if array.shape == shape:
            hint = f"; convert it, for example with astype({str(dtype)!r})"
        raise InputError(
            f"{name} is {_type(dtype, shape)}, not {_type(array.dtype, array.shape)}{hint}"
        )
    return array


def _array(value: Any, name: str, dtype: np.dtype) -> np.ndarray:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, bool | int | float | Sequence):
        try:
            array = np.asarray(value)
            lossless = array.dtype.kind in "biuf" and not (
                array.dtype.kind == "f" and dtype.kind in "biu"
            )
            if lossless and (dtype.kind not in "biu" or np.array_equal(array.astype(dtype), array)):
                return array.astype(dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{name} is not made of numbers: {error}") from error
        raise InputError(f"{name}: these numbers are not of {dtype}")
    kind = str(getattr(value, "dtype", ""))
    if kind.startswith("key<"):
        value = sys.modules["jax"].random.key_data(value)
    if hasattr(value, "detach"):
        value = value.detach()
        if kind == "torch.bfloat16":
            # Neither NumPy nor DLPack for NumPy know the type.
            words = value.cpu().view(sys.modules["torch"].int16)
            return np.from_dlpack(words).view(BFLOAT16.dtype)
        value = value.cpu().resolve_neg().resolve_conj()
    elif kind == str(BFLOAT16.dtype) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        return np.from_dlpack(value)
    except (BufferError, TypeError, RuntimeError):
        # On another device, or of a type that DLPack has not.
        return np.asarray(value)


def _type(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype} of shape {shape}"
