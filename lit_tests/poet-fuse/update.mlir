// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// The weight gradient never exists: its kernel writes the new parameter in place of the old one.

// CHECK:      poet.graph @main(%w: tensor<16x8xf32> {poet.role = "param", poet.updates = 0 : i64}
// CHECK-NEXT:   %{{.*}} = poet.compute "dot_multiply_subtract"
// CHECK-SAME:     -> tensor<16x8xf32> inplace {{\[\[}}0, {{[0-9]}}]]
// CHECK:          stablehlo.dot_general
// CHECK:          stablehlo.transpose
// CHECK:          stablehlo.subtract
// CHECK-NOT:    poet.compute
// CHECK:        poet.return
func.func public @main(%w: tensor<16x8xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<4x16xf32>,
                       %g: tensor<4x8xf32>) -> tensor<16x8xf32> {
  %0 = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %rate = stablehlo.constant dense<0.1> : tensor<f32>
  %2 = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<16x8xf32>
  %3 = stablehlo.multiply %2, %1 : tensor<16x8xf32>
  %4 = stablehlo.subtract %w, %3 : tensor<16x8xf32>
  return %4 : tensor<16x8xf32>
}
