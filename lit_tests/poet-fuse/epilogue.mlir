// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// Bias and activation run in the kernel of the contraction; the mask of the ReLU is recomputed where
// it is needed, from the activation that is stored anyway.

// CHECK:       %{{.*}} = poet.compute "dot_add_maximum"
// CHECK-SAME:    -> tensor<4x8xf32>
// CHECK:         stablehlo.dot_general
// CHECK:         stablehlo.maximum
// CHECK:       %{{.*}} = poet.compute "dot_compare_select"
// CHECK-SAME:    -> tensor<4x8xf32>
// CHECK-NOT:   poet.compute
// CHECK:       poet.return
func.func public @main(%x: tensor<4x16xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>,
                       %v: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.add %0, %1 : tensor<4x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %4 = stablehlo.maximum %2, %3 : tensor<4x8xf32>
  %5 = stablehlo.compare GT, %4, %3 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
  %6 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %7 = stablehlo.select %5, %6, %3 : tensor<4x8xi1>, tensor<4x8xf32>
  return %4, %7 : tensor<4x8xf32>, tensor<4x8xf32>
}
