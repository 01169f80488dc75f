// RUN: xdsl-opt %s -p 'stablehlo-split{params="1:2"}' | filecheck %s

// Weights and the state of their optimiser are split alike. Parts come after all arguments, their
// new values after all results.

// CHECK:      func.func public @main(%m: tensor<2xf32> {tf.aliasing_output = 0 : i32, poet.shard = array<i64: 0, 0, 0>}, %w: tensor<2xf32> {tf.aliasing_output = 1 : i32, poet.shard = array<i64: 1, 0, 0>}, %x: tensor<4xf32>, %m_1: tensor<2xf32> {tf.aliasing_output = 3 : i32, poet.shard = array<i64: 0, 0, 2>}, %w_1: tensor<2xf32> {tf.aliasing_output = 4 : i32, poet.shard = array<i64: 1, 0, 2>}) -> (tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>) {
// CHECK-NEXT:   %c = stablehlo.constant dense<5.000000e-01> : tensor<f32>
// CHECK-NEXT:   %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:   %0 = stablehlo.slice %x [0:2] : (tensor<4xf32>) -> tensor<2xf32>
// CHECK-NEXT:   %p = stablehlo.multiply %w, %0 : tensor<2xf32>
// CHECK-NEXT:   %1 = stablehlo.slice %x [2:4] : (tensor<4xf32>) -> tensor<2xf32>
// CHECK-NEXT:   %p_1 = stablehlo.multiply %w_1, %1 : tensor<2xf32>
// CHECK-NEXT:   %p_2 = stablehlo.concatenate %p, %p_1, dim = 0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
// CHECK-NEXT:   %loss = stablehlo.reduce(%p_2 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
// CHECK-NEXT:   %2 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2xf32>
// CHECK-NEXT:   %d = stablehlo.multiply %m, %2 : tensor<2xf32>
// CHECK-NEXT:   %3 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2xf32>
// CHECK-NEXT:   %d_1 = stablehlo.multiply %m_1, %3 : tensor<2xf32>
// CHECK-NEXT:   %m2 = stablehlo.add %d, %0 : tensor<2xf32>
// CHECK-NEXT:   %m2_1 = stablehlo.add %d_1, %1 : tensor<2xf32>
// CHECK-NEXT:   %w2 = stablehlo.subtract %w, %m2 : tensor<2xf32>
// CHECK-NEXT:   %w2_1 = stablehlo.subtract %w_1, %m2_1 : tensor<2xf32>
// CHECK-NEXT:   func.return %m2, %w2, %loss, %m2_1, %w2_1 : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>
// CHECK-NEXT: }

func.func public @main(%m: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %w: tensor<4xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>) {
  %c = stablehlo.constant dense<5.000000e-01> : tensor<f32>
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %p = stablehlo.multiply %w, %x : tensor<4xf32>
  %loss = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %d = stablehlo.multiply %m, %b : tensor<4xf32>
  %m2 = stablehlo.add %d, %x : tensor<4xf32>
  %w2 = stablehlo.subtract %w, %m2 : tensor<4xf32>
  return %m2, %w2, %loss : tensor<4xf32>, tensor<4xf32>, tensor<f32>
}
