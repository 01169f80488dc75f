// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// Two kernels need the mask. It is cheap and its operand is there for both anyway: each makes it, and
// no tensor of i1 is stored.

// CHECK:      poet.graph @main
// CHECK-NOT:  -> tensor<4x8xi1> {
// CHECK:      poet.compute "dot_compare_select"
// CHECK:      poet.compute "dot_compare_select"
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%a: tensor<4x8xf32>, %v: tensor<8x8xf32>, %w: tensor<8x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %act = stablehlo.tanh %a : tensor<4x8xf32>
  %mask = stablehlo.compare GT, %act, %0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
  %1 = stablehlo.dot_general %act, %v, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.select %mask, %1, %0 : tensor<4x8xi1>, tensor<4x8xf32>
  %3 = stablehlo.dot_general %act, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %4 = stablehlo.select %mask, %3, %0 : tensor<4x8xi1>, tensor<4x8xf32>
  return %act, %2, %4 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
