// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// Reductions over different axes do not share loops: two kernels.

// CHECK:      poet.compute "reduce"
// CHECK-SAME:   -> tensor<10xf32>
// CHECK:      poet.compute "reduce_subtract"
// CHECK-SAME:   -> tensor<4xf32>
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%x: tensor<4x10xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4x10xf32>, tensor<f32>) -> tensor<10xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<10xf32>) -> tensor<4x10xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<4x10xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
