"""The own mathematical functions: within 2 ulp, C's special cases, same bits in C and on arrays."""

import ctypes
import subprocess
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from poetc.backends.c.runtime_files import RUNTIME, math_sources
from poetc.ir import mathlib

REFERENCES = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "cbrt": np.cbrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "roundeven": np.rint,
}
"""What each function of one argument is, in float64."""

ULP = {"sqrt": 0.5, "floor": 0, "ceil": 0, "round": 0, "roundeven": 0}
"""The largest errors, where they are less than 1.5 units in the last place."""

SPECIAL = np.array(
    [0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, np.inf],
    np.float32,
)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL, np.array([np.nan], np.float32)])


def all_bits(count: int, seed: int) -> np.ndarray:
    """Floats spread over all bit patterns: all exponents, denormals, infinities, NaN."""
    bits = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    return bits.view(np.float32)


def samples() -> np.ndarray:
    """Floats of all sizes, more of them where the functions are neither 0, 1 nor infinite."""
    usual = np.linspace(-110, 110, 300_001, dtype=np.float32)
    return np.concatenate([SPECIAL, all_bits(500_000, 0), usual, usual / 64])


def pow_samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x, y = map(np.array, zip(*product(SPECIAL, SPECIAL), strict=True))
    count = 150_000

    def normal(scale: float) -> np.ndarray:
        return rng.normal(size=count) * scale

    pairs = [
        (x, y),
        (all_bits(count, 2), all_bits(count, 3)),
        (np.abs(normal(1)), normal(40)),
        (np.exp(normal(20)), normal(3)),
        (1 + normal(1e-4), normal(300_000)),
        (1 + normal(1e-7), normal(3e8)),
        (-rng.integers(0, 100, count), rng.integers(-20, 20, count)),
        (normal(100), rng.integers(-9, 10, count)),
    ]
    xs, ys = zip(*pairs, strict=True)
    with np.errstate(all="ignore"):
        return np.concatenate(xs).astype(np.float32), np.concatenate(ys).astype(np.float32)


def assert_within_ulp(got: np.ndarray, exact: np.ndarray, ulp: float) -> None:
    """`got` is NaN where `exact` is, has its sign, and is at most `ulp` units off.

    A unit is one in the last place of the exact result; too large ones have that of the largest.
    """
    assert got.dtype == np.float32
    assert np.array_equal(np.isnan(got), np.isnan(exact))
    number = ~np.isnan(exact)
    got, exact = got[number], exact[number]
    assert np.array_equal(np.signbit(got), np.signbit(exact))
    # Infinity stands for the first number that is too large.
    limit = np.ldexp(1.0, 128)
    got, exact = (np.clip(value.astype(np.longdouble), -limit, limit) for value in (got, exact))
    unit = np.ldexp(1.0, np.clip(np.frexp(exact)[1] - 24, -149, 104))
    error = np.abs(got - exact) / unit
    assert error.max() <= ulp


def test_every_function_has_a_reference() -> None:
    assert {name for name in mathlib.symbols() if arity(name) == 1} == set(REFERENCES)


@pytest.mark.parametrize("name", REFERENCES)
def test_accuracy(name: str) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](x.astype(np.float64))
    assert_within_ulp(mathlib.evaluate(name, x), exact, ULP.get(name, 1.5))


@pytest.mark.slow
def test_accuracy_of_pow() -> None:
    x, y = pow_samples()
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert_within_ulp(mathlib.evaluate("pow", x, y), exact, 1.5)


def test_accuracy_of_atan2() -> None:
    y, x = pow_samples()
    with np.errstate(all="ignore"):
        exact = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    assert_within_ulp(mathlib.evaluate("atan2", y, x), exact, 2)


def test_remainder_is_exact() -> None:
    x, y = pow_samples()
    with np.errstate(all="ignore"):
        exact = np.fmod(x, y)
    found = mathlib.evaluate("rem", x, y)
    assert np.array_equal(np.isnan(found), np.isnan(exact))
    assert ((found.view(np.int32) == exact.view(np.int32)) | np.isnan(exact)).all()


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", -0.0, 1.0),
        ("exp", -np.inf, 0.0),
        ("exp", np.inf, np.inf),
        ("exp", 88.8, np.inf),
        ("exp", -104.0, 0.0),
        ("exp", -103.27893, 1e-45),
        ("log", 0.0, -np.inf),
        ("log", -0.0, -np.inf),
        ("log", 1.0, 0.0),
        ("log", -1.0, np.nan),
        ("log", np.inf, np.inf),
        ("tanh", -0.0, -0.0),
        ("tanh", 1e-45, 1e-45),
        ("tanh", -np.inf, -1.0),
        ("sqrt", -0.0, -0.0),
        ("sqrt", -1e-45, np.nan),
        ("sqrt", np.inf, np.inf),
        ("log1p", -0.0, -0.0),
        ("log1p", -1.0, -np.inf),
        ("log1p", -1.0000001, np.nan),
        ("log1p", np.inf, np.inf),
        ("expm1", -0.0, -0.0),
        ("expm1", -np.inf, -1.0),
        ("expm1", np.inf, np.inf),
        ("floor", -0.0, -0.0),
        ("ceil", -0.5, -0.0),
        ("round", -2.5, -3.0),
        ("roundeven", -2.5, -2.0),
        ("rsqrt", 0.0, np.inf),
        ("rsqrt", -0.0, -np.inf),
        ("rsqrt", np.inf, 0.0),
        ("rsqrt", -1.0, np.nan),
    ],
)
def test_special_cases(name: str, x: float, expected: float) -> None:
    (got,) = mathlib.evaluate(name, np.array([x], np.float32))
    np.testing.assert_array_equal(got, np.float32(expected))
    assert np.isnan(expected) or np.signbit(got) == np.signbit(expected)


def test_tanh_is_odd_and_never_falls() -> None:
    x = np.sort(np.concatenate([samples(), np.linspace(0.4, 1.1, 2_000_000, dtype=np.float32)]))
    x = x[~np.isnan(x)]
    y = mathlib.evaluate("tanh", x)
    assert (np.diff(y) >= 0).all()
    assert np.array_equal(mathlib.evaluate("tanh", -x).view(np.int32), (-y).view(np.int32))


def arity(name: str) -> int:
    return len(mathlib.function(mathlib.symbols()[name]).body.block.args)


@pytest.mark.parametrize("name", mathlib.symbols())
def test_nan_stays_nan(name: str) -> None:
    nan = np.array([np.nan], np.float32)
    arguments = [nan, np.array([2], np.float32)][: arity(name)]
    assert np.isnan(mathlib.evaluate(name, *arguments)).all()
    assert np.isnan(mathlib.evaluate(name, *arguments[::-1])).all()


def test_arrays_of_any_shape_without_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mathlib.evaluate("log", np.array(0, np.float32)).shape == ()
        assert mathlib.evaluate("exp", np.full((2, 0, 3), 1000, np.float32)).shape == (2, 0, 3)
        assert mathlib.evaluate("exp", np.full((2, 3), 1000, np.float32)).shape == (2, 3)
        cubes = mathlib.evaluate(
            "pow", np.arange(6, dtype=np.float32).reshape(2, 3), np.array(3, np.float32)
        )
    np.testing.assert_array_equal(cubes, [[0, 1, 8], [27, 64, 125]])


def test_only_float32() -> None:
    with pytest.raises(TypeError, match="float64"):
        mathlib.evaluate("exp", np.zeros(3))
    with pytest.raises(KeyError):
        mathlib.evaluate("sinh", np.zeros(3, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_same_bits_in_c(compiler: str, tmp_path: Path) -> None:
    header, source = math_sources(mathlib.symbols().values())
    wrappers = "".join(
        f"void each_{name}(const float *x, const float *y, float *r, int n) {{ (void)y; "
        f"for (int i = 0; i < n; ++i) r[i] = {symbol}({'x[i], y[i]'[: 6 * arity(name) - 2]}); }}"
        for name, symbol in mathlib.symbols().items()
    )
    (tmp_path / "poetc_math.h").write_text(header)
    (tmp_path / "poetc_math.c").write_text(source)
    (tmp_path / "each.c").write_text('#include "poetc_math.h"\n' + wrappers)
    library = tmp_path / "each.so"
    command = [compiler, "-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion"]
    command += ["-Wshadow", "-Werror", "-shared", "-fPIC", f"-I{RUNTIME}", "-o", str(library)]
    subprocess.run([*command, tmp_path / "each.c", tmp_path / "poetc_math.c"], check=True)
    functions = ctypes.CDLL(str(library))

    one, pairs = samples(), pow_samples()
    for name in mathlib.symbols():
        x, y = (one, one) if arity(name) == 1 else pairs
        result = np.empty_like(x)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, result)]
        functions[f"each_{name}"](*pointers, ctypes.c_int(x.size))
        expected = mathlib.evaluate(name, *[x, y][: arity(name)])
        assert np.array_equal(result.view(np.uint32), expected.view(np.uint32)), name
