"""Relax modules and PrimFuncs for the tests, as TVMScript, which is not quite Python."""

# ruff: noqa: N805, N812, F841, SIM108
# pyright: reportInvalidTypeForm=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportSelfClsParameterName=false
from __future__ import annotations

import pytest

pytest.importorskip("tvm", reason="poetc.tvm is optional: pip install 'poetc[tvm]'")

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Returns:
    @R.function
    def main(
        x: R.Tensor((4, 6), "float32"), y: R.Tensor((4, 6), "float32"), z: R.Tensor((), "bool")
    ):
        with R.dataflow():
            h = R.exp(x)
            unused = R.exp(h)
            flat = R.reshape(h, (24,))
            pair = (h, y)
            back = pair[1]
            twice = R.add(h, h)
            turned = R.reshape(x, (6, 4))
            gone = R.add(unused, unused)
            R.output(h, flat, back, twice, turned)
        return ((h, flat), back, (twice, turned, R.const([1.0, 2.0], "float32")), twice, z)

    @R.function
    def caller(x: R.Tensor((4, 6), "float32"), z: R.Tensor((), "bool")):
        cls = Returns
        result = cls.main(x, x, z)
        return result[2][0]

    @R.function
    def nothing(x: R.Tensor((4,), "float32")):
        return (x, x)


@I.ir_module
class Refused:
    @R.function
    def main(x: R.Tensor((4, "n"), "float32"), y: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.call_dps_packed("library.f", (y,), out_ty=R.Tensor((8,), "float32"))
            c = R.call_pure_packed("library.g", b, ty_args=R.Tensor((8,), "float32"))
            d = R.add(c, y)
            e = R.ewise_fma(y, y, y)
            R.output(a, d, e)
        return (a, d, e)

    @R.function(pure=False)
    def loud(y: R.Tensor((8,), "float32")):
        R.print(y, format="{}")
        z = Refused.called(y)
        return z

    @R.function(private=True)
    def called(y: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        return y

    @R.function
    def branches(y: R.Tensor((8,), "float32"), c: R.Tensor((), "bool")):
        if c:
            z = R.exp(y)
        else:
            z = R.negative(y)
        return z


# PrimFuncs: what may share bytes with what


@T.prim_func(private=True, s_tir=True)
def add(a: T.Buffer((4, 8)), b: T.Buffer((4, 8)), c: T.Buffer((4, 8))):
    for i, j in T.grid(4, 8):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] + b[vi, vj]


@T.prim_func(private=True, s_tir=True)
def add_row(a: T.Buffer((4, 8)), b: T.Buffer((1, 8)), c: T.Buffer((4, 8))):
    for i, j in T.grid(4, 8):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] * b[0, vj]


@T.prim_func(private=True, s_tir=True)
def interchanged(a: T.Buffer((4, 1, 8)), c: T.Buffer((4, 1, 8))):
    for j, i in T.grid(8, 4):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, 0, vj] = a[vi, 0, vj] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def transposed(a: T.Buffer((8, 8)), c: T.Buffer((8, 8))):
    for i, j in T.grid(8, 8):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vj, vi]


@T.prim_func(private=True, s_tir=True)
def shifted(a: T.Buffer((32,)), c: T.Buffer((32,))):
    for i in range(32):
        with T.sblock("c"):
            vi = T.axis.spatial(32, i)
            c[vi] = a[vi] + a[(vi + 31) % 32]


@T.prim_func(private=True, s_tir=True)
def sums(a: T.Buffer((4, 4)), c: T.Buffer((4, 4))):
    for i, j, k in T.grid(4, 4, 4):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk]


@T.prim_func(private=True, s_tir=True)
def copied_first(a: T.Buffer((8, 8)), c: T.Buffer((8, 8))):
    t = T.sblock_alloc_buffer((8, 8))
    for i, j in T.grid(8, 8):
        with T.sblock("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = a[vi, vj]
    for i, j in T.grid(8, 8):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = t[vj, vi] + t[vi, vj]


@T.prim_func(private=True, s_tir=True)
def read_again(a: T.Buffer((32,)), c: T.Buffer((32,)), d: T.Buffer((32,))):
    for i in range(32):
        with T.sblock("c"):
            vi = T.axis.spatial(32, i)
            c[vi] = a[vi] + T.float32(1)
    for i in range(32):
        with T.sblock("d"):
            vi = T.axis.spatial(32, i)
            d[vi] = a[vi] + c[31 - vi]


@T.prim_func(private=True, s_tir=True)
def written_twice(a: T.Buffer((32,)), c: T.Buffer((32,))):
    for i in range(32):
        with T.sblock("first"):
            vi = T.axis.spatial(32, i)
            c[vi] = T.float32(2)
    for i in range(32):
        with T.sblock("second"):
            vi = T.axis.spatial(32, i)
            c[vi] = c[vi] + a[vi]


@T.prim_func(private=True, s_tir=True)
def run_twice(a: T.Buffer((32,)), c: T.Buffer((32,))):
    for i, _ in T.grid(32, 2):
        with T.sblock("c"):
            vi = T.axis.spatial(32, i)
            c[vi] = a[vi] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def in_halves(a: T.Buffer((32,)), c: T.Buffer((32,))):
    for i in range(64):
        with T.sblock("c"):
            vi = T.axis.spatial(32, i // 2)
            c[vi] = a[vi] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def reversed_rows(a: T.Buffer((4, 8)), c: T.Buffer((8, 4))):
    for i, j in T.grid(8, 4):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vj, vi]


@T.prim_func(private=True, s_tir=True)
def unread(a: T.Buffer((32,)), c: T.Buffer((32,))):
    for i in range(32):
        with T.sblock("c"):
            vi = T.axis.spatial(32, i)
            c[vi] = T.float32(7)


@T.prim_func(private=True, s_tir=True)
def by_another_name(a: T.Buffer((8, 8)), c: T.Buffer((8, 8))):
    for i, j in T.grid(8, 8):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(a[vj, vi])
            T.writes(c[vi, vj])
            e = T.match_buffer(a[vj, vi], (), offset_factor=1)
            c[vi, vj] = e[()]


@T.prim_func(private=True, s_tir=True)
def by_address(a: T.Buffer((32,)), c: T.Buffer((32,))):
    for i in range(32):
        with T.sblock("c"):
            vi = T.axis.spatial(32, i)
            T.reads(a[0:32])
            T.writes(c[vi])
            c[vi] = a[vi] + T.call_extern("float32", "f", a.access_ptr("r"))


@T.prim_func(private=True, s_tir=True)
def chain(a: T.Buffer((32, 32)), d: T.Buffer((32, 32))):
    t = T.sblock_alloc_buffer((32, 32))
    u = T.sblock_alloc_buffer((32, 32))
    v = T.sblock_alloc_buffer((32, 32))
    for i, j in T.grid(32, 32):
        with T.sblock("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = a[vj, vi]
    for i, j in T.grid(32, 32):
        with T.sblock("u"):
            vi, vj = T.axis.remap("SS", [i, j])
            u[vi, vj] = t[vj, vi] + T.float32(1)
    for i, j in T.grid(32, 32):
        with T.sblock("v"):
            vi, vj = T.axis.remap("SS", [i, j])
            v[vi, vj] = u[vj, vi] * T.float32(3)
    for i, j in T.grid(32, 32):
        with T.sblock("d"):
            vi, vj = T.axis.remap("SS", [i, j])
            d[vi, vj] = v[31 - vi, vj]


@T.prim_func(private=True, s_tir=True)
def product(a: T.Buffer((64, 64)), b: T.Buffer((64, 64)), c: T.Buffer((64, 64))):
    for i, j, k in T.grid(64, 64, 64):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


@T.prim_func(private=True, s_tir=True)
def calls_out(a: T.Buffer((8,)), c: T.Buffer((8,))):
    with T.sblock("c"):
        T.reads(a[0:8])
        T.writes(c[0:8])
        T.evaluate(T.call_extern("void", "library", a.data, c.data))


@T.prim_func(private=True, s_tir=True)
def symbolic(x: T.handle, y: T.handle):
    n = T.int64()
    a = T.match_buffer(x, (n,))
    c = T.match_buffer(y, (n,))
    for i in range(n):
        with T.sblock("c"):
            vi = T.axis.spatial(n, i)
            c[vi] = a[vi]
