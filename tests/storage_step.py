"""A small step with parameters on storage, scheduled and planned by hand.

`w` and `v` are updated, `c` is not; `h` is paged out and in; `w`, updated, is paged in once more.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from poetc.ir.text import parse_module

UNIT, BANK = 64, 64

STEP = """
poet.graph @main(
    %x: tensor<4xf32> {poet.role = "input", poet.name = "x", poet.offset = 0 : i64},
    %w: !poet.page<tensor<4xf32>>
      {poet.role = "param", poet.updates = 1 : i64, poet.name = "w", poet.offset = 192 : i64},
    %c: !poet.page<tensor<4xf32>> {poet.role = "param", poet.name = "c", poet.offset = 128 : i64},
    %v: !poet.page<tensor<4xf32>>
      {poet.role = "param", poet.updates = 2 : i64, poet.name = "v", poet.offset = 212 : i64}
) -> (tensor<4xf32>, !poet.page<tensor<4xf32>>, !poet.page<tensor<4xf32>>)
attributes {
  arena_bytes = 48 : i64, storage_bytes = 340 : i64, bank_bytes = 64 : i64, storage_unit = 64 : i64
} {
  %c0 = poet.pagein %c offset 16 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %h = poet.compute "add" (%a = %x : tensor<4xf32>, %b = %c0 : tensor<4xf32>)
      -> tensor<4xf32> kernel @add offsets [32] {
    %s = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %s : tensor<4xf32>
  }
  poet.free %c0 : tensor<4xf32>
  poet.free %x : tensor<4xf32>
  %page = poet.pageout %h offset 320 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %h : tensor<4xf32>
  %w0 = poet.pagein %w offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %h1 = poet.pagein %page offset 16 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w1 = poet.compute "update" (%a = %w0 : tensor<4xf32>, %b = %h1 : tensor<4xf32>)
      -> tensor<4xf32> kernel @add_to inplace [[0, 0]] offsets [0] {
    %s = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %s : tensor<4xf32>
  }
  %w_new = poet.pageout %w1 offset 192 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w1 : tensor<4xf32>
  %v0 = poet.pagein %v offset 32 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %v1 = poet.compute "update" (%a = %v0 : tensor<4xf32>, %b = %h1 : tensor<4xf32>)
      -> tensor<4xf32> kernel @add_to inplace [[0, 0]] offsets [32] {
    %s = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %s : tensor<4xf32>
  }
  %v_new = poet.pageout %v1 offset 212 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %v1 : tensor<4xf32>
  %w2 = poet.pagein %w_new offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %y = poet.compute "add" (%a = %w2 : tensor<4xf32>, %b = %h1 : tensor<4xf32>)
      -> tensor<4xf32> kernel @add offsets [32] {
    %s = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %s : tensor<4xf32>
  }
  poet.free %w2 : tensor<4xf32>
  poet.free %h1 : tensor<4xf32>
  poet.return %y, %w_new, %v_new
    : tensor<4xf32>, !poet.page<tensor<4xf32>>, !poet.page<tensor<4xf32>>
}

func.func private @add(%x: memref<4xf32>, %y: memref<4xf32>, %out: memref<4xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 4 {
    %a = affine.load %x[%i] : memref<4xf32>
    %b = affine.load %y[%i] : memref<4xf32>
    %s = arith.addf %a, %b : f32
    affine.store %s, %out[%i] : memref<4xf32>
  }
  func.return
}
func.func private @add_to(%x: memref<4xf32>, %y: memref<4xf32>, %out: memref<4xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 4 {
    %a = affine.load %x[%i] : memref<4xf32>
    %b = affine.load %y[%i] : memref<4xf32>
    %s = arith.addf %a, %b : f32
    affine.store %s, %out[%i] : memref<4xf32>
  }
  func.return
}
"""

_RANDOM = np.random.default_rng(0)
X, W, C, V = (_RANDOM.normal(size=4).astype(np.float32) for _ in range(4))


def storage_module() -> ModuleOp:
    return parse_module(STEP)


def expected(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The result, w and v after that many steps."""
    h = X + C
    w, v = W, V
    for _ in range(steps):
        w, v = w + h, v + h
    return w + h, w, v
