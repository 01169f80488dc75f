// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// A contraction reads each element of its operands many times: tanh is stored, the transpose is not.

// CHECK:      poet.compute "tanh"
// CHECK-SAME:   -> tensor<16x4xf32>
// CHECK:      poet.compute "dot"
// CHECK:        stablehlo.transpose
// CHECK:        stablehlo.dot_general
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%x: tensor<16x4xf32>, %w: tensor<16x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.tanh %x : tensor<16x4xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<16x4xf32>) -> tensor<4x16xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
