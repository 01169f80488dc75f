// RUN: xdsl-opt %s -p 'stablehlo-split{params="0:2"}' | filecheck %s

// A table in columns: each part is looked up by itself, and gets its gradient added by itself.

// CHECK:      func.func public @main(%t: tensor<5x2xf32> {tf.aliasing_output = 1 : i32, poet.shard = array<i64: 0, 1, 0>}, %i: tensor<3x1xi32>, %t_1: tensor<5x2xf32> {tf.aliasing_output = 2 : i32, poet.shard = array<i64: 0, 1, 2>}) -> (tensor<3x4xf32>, tensor<5x2xf32>, tensor<5x2xf32>) {
// CHECK-NEXT:   %e = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>, indices_are_sorted = false}> : (tensor<5x2xf32>, tensor<3x1xi32>) -> tensor<3x2xf32>
// CHECK-NEXT:   %e_1 = "stablehlo.gather"(%t_1, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>, indices_are_sorted = false}> : (tensor<5x2xf32>, tensor<3x1xi32>) -> tensor<3x2xf32>
// CHECK-NEXT:   %e_2 = stablehlo.concatenate %e, %e_1, dim = 1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x4xf32>
// CHECK-NEXT:   %n = "stablehlo.scatter"(%t, %i, %e) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
// CHECK-NEXT:   ^bb0(%a: tensor<f32>, %b: tensor<f32>):
// CHECK-NEXT:     %s = stablehlo.add %a, %b : tensor<f32>
// CHECK-NEXT:     stablehlo.return %s : tensor<f32>
// CHECK-NEXT:   }) : (tensor<5x2xf32>, tensor<3x1xi32>, tensor<3x2xf32>) -> tensor<5x2xf32>
// CHECK-NEXT:   %n_1 = "stablehlo.scatter"(%t_1, %i, %e_1) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
// CHECK-NEXT:   ^bb0(%a_1: tensor<f32>, %b_1: tensor<f32>):
// CHECK-NEXT:     %s_1 = stablehlo.add %a_1, %b_1 : tensor<f32>
// CHECK-NEXT:     stablehlo.return %s_1 : tensor<f32>
// CHECK-NEXT:   }) : (tensor<5x2xf32>, tensor<3x1xi32>, tensor<3x2xf32>) -> tensor<5x2xf32>
// CHECK-NEXT:   func.return %e_2, %n, %n_1 : tensor<3x4xf32>, tensor<5x2xf32>, tensor<5x2xf32>
// CHECK-NEXT: }

func.func public @main(%t: tensor<5x4xf32> {tf.aliasing_output = 1 : i32}, %i: tensor<3x1xi32>) -> (tensor<3x4xf32>, tensor<5x4xf32>) {
  %e = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>, indices_are_sorted = false}> : (tensor<5x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>
  %n = "stablehlo.scatter"(%t, %i, %e) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<5x4xf32>, tensor<3x1xi32>, tensor<3x4xf32>) -> tensor<5x4xf32>
  return %e, %n : tensor<3x4xf32>, tensor<5x4xf32>
}
