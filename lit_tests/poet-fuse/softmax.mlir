// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// One kernel: maximum, sum and quotient of each row; row maxima and sums are no tensors.

// CHECK:      poet.compute "reduce_subtract_exponential_divide"
// CHECK-SAME:   (%a = %x : tensor<4x10xf32>) -> tensor<4x10xf32>
// CHECK:        stablehlo.maximum
// CHECK:        stablehlo.divide
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%x: tensor<4x10xf32>) -> tensor<4x10xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<4xf32>) -> tensor<4x10xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<4x10xf32>
  %3 = stablehlo.exponential %2 : tensor<4x10xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<4xf32>) -> tensor<4x10xf32>
  %6 = stablehlo.divide %3, %5 : tensor<4x10xf32>
  return %6 : tensor<4x10xf32>
}
