// RUN: xdsl-opt %s -p 'stablehlo-split{params="1@1:2"}' | filecheck %s --check-prefix=COLUMNS
// RUN: xdsl-opt %s -p 'stablehlo-split{params="1:2"}' | filecheck %s --check-prefix=ROWS

// A dense layer and its update. In columns, the layer gives parts that what reads it takes as one.
// In rows, which is what is chosen, a contraction goes on where the one before it ended. The
// gradient is never whole: its parts are computed from slices.

// COLUMNS:      func.func public @main(%x: tensor<4x6xf32>, %w: tensor<6x4xf32> {tf.aliasing_output = 1 : i32, poet.shard = array<i64: 1, 1, 0>}, %w_1: tensor<6x4xf32> {tf.aliasing_output = 2 : i32, poet.shard = array<i64: 1, 1, 4>}) -> (tensor<4x4xf32>, tensor<6x4xf32> {jax.result_info = "result[1]['w']"}, tensor<6x4xf32> {jax.result_info = "result[1]['w']"}) {
// COLUMNS-NEXT:   %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
// COLUMNS-NEXT:   %h_1 = stablehlo.dot_general %x, %w_1, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
// COLUMNS-NEXT:   %t = stablehlo.tanh %h : tensor<4x4xf32>
// COLUMNS-NEXT:   %t_1 = stablehlo.tanh %h_1 : tensor<4x4xf32>
// COLUMNS-NEXT:   %t_2 = stablehlo.concatenate %t, %t_1, dim = 1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
// COLUMNS-NEXT:   %y = stablehlo.dot_general %t_2, %t_2, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
// COLUMNS-NEXT:   %0 = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0] : (tensor<4x6xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
// COLUMNS-NEXT:   %n = stablehlo.subtract %w, %0 : tensor<6x4xf32>
// COLUMNS-NEXT:   %1 = stablehlo.dot_general %x, %t_1, contracting_dims = [0] x [0] : (tensor<4x6xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
// COLUMNS-NEXT:   %n_1 = stablehlo.subtract %w_1, %1 : tensor<6x4xf32>
// COLUMNS-NEXT:   func.return %y, %n, %n_1 : tensor<4x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>
// COLUMNS-NEXT: }

// ROWS:      func.func public @main(%x: tensor<4x6xf32>, %w: tensor<3x8xf32> {tf.aliasing_output = 1 : i32, poet.shard = array<i64: 1, 0, 0>}, %w_1: tensor<3x8xf32> {tf.aliasing_output = 2 : i32, poet.shard = array<i64: 1, 0, 3>}) -> (tensor<4x4xf32>, tensor<3x8xf32> {jax.result_info = "result[1]['w']"}, tensor<3x8xf32> {jax.result_info = "result[1]['w']"}) {
// ROWS-NEXT:   %0 = stablehlo.slice %x [0:4, 0:3] : (tensor<4x6xf32>) -> tensor<4x3xf32>
// ROWS-NEXT:   %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
// ROWS-NEXT:   %2 = stablehlo.slice %x [0:4, 3:6] : (tensor<4x6xf32>) -> tensor<4x3xf32>
// ROWS-NEXT:   %h = resume.dot_general %1, %2, %w_1, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
// ROWS-NEXT:   %t = stablehlo.tanh %h : tensor<4x8xf32>
// ROWS-NEXT:   %y = stablehlo.dot_general %t, %t, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
// ROWS-NEXT:   %3 = stablehlo.dot_general %0, %t, contracting_dims = [0] x [0] : (tensor<4x3xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
// ROWS-NEXT:   %n = stablehlo.subtract %w, %3 : tensor<3x8xf32>
// ROWS-NEXT:   %4 = stablehlo.dot_general %2, %t, contracting_dims = [0] x [0] : (tensor<4x3xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
// ROWS-NEXT:   %n_1 = stablehlo.subtract %w_1, %4 : tensor<3x8xf32>
// ROWS-NEXT:   func.return %y, %n, %n_1 : tensor<4x4xf32>, tensor<3x8xf32>, tensor<3x8xf32>
// ROWS-NEXT: }

func.func public @main(%x: tensor<4x6xf32>, %w: tensor<6x8xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4x4xf32>, tensor<6x8xf32> {jax.result_info = "result[1]['w']"}) {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  %t = stablehlo.tanh %h : tensor<4x8xf32>
  %y = stablehlo.dot_general %t, %t, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  %g = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0] : (tensor<4x6xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %n = stablehlo.subtract %w, %g : tensor<6x8xf32>
  return %y, %n : tensor<4x4xf32>, tensor<6x8xf32>
}
