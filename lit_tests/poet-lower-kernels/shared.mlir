// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// Equal bodies share a kernel; one that works in place has its own.
poet.graph @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %a = poet.compute "negate"
  // CHECK-SAME: kernel @negate {
  %a = poet.compute "negate" (%p = %x : tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %p : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  // CHECK: %b = poet.compute "negate"
  // CHECK-SAME: kernel @negate {
  %b = poet.compute "negate" (%q = %a : tensor<4xf32>) -> tensor<4xf32> {
    %1 = stablehlo.negate %q : tensor<4xf32>
    poet.yield %1 : tensor<4xf32>
  }
  // CHECK: %c = poet.compute "negate"
  // CHECK-SAME: kernel @negate_1 inplace [[0, 0]] {
  %c = poet.compute "negate" (%r = %b : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    %2 = stablehlo.negate %r : tensor<4xf32>
    poet.yield %2 : tensor<4xf32>
  }
  poet.return %c : tensor<4xf32>
}

// CHECK: func.func private @negate(%in0: memref<4xf32>, %out0: memref<4xf32>)
// CHECK-SAME: {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}
// CHECK: func.func private @negate_1(
// CHECK-NOT: func.func
