// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

// CHECK-LABEL: func.func public @elementwise
func.func public @elementwise(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %i: tensor<4xi32>, %p: tensor<4xi1>) {
  // CHECK-NEXT: %0 = stablehlo.add %x, %y : tensor<2x3xf32>
  %0 = stablehlo.add %x, %y : tensor<2x3xf32>
  // CHECK-NEXT: %1 = stablehlo.subtract %x, %y : tensor<2x3xf32>
  %1 = stablehlo.subtract %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: %2 = stablehlo.multiply %i, %i : tensor<4xi32>
  %2 = stablehlo.multiply %i, %i : tensor<4xi32>
  // CHECK-NEXT: %3 = stablehlo.divide %x, %y : tensor<2x3xf32>
  %3 = stablehlo.divide %x, %y : tensor<2x3xf32>
  // CHECK-NEXT: %4 = stablehlo.maximum %x, %y : tensor<2x3xf32>
  %4 = stablehlo.maximum %x, %y : tensor<2x3xf32>
  // CHECK-NEXT: %5 = stablehlo.minimum %x, %y : tensor<2x3xf32>
  %5 = stablehlo.minimum %x, %y : tensor<2x3xf32>
  // CHECK-NEXT: %6 = stablehlo.power %x, %y : tensor<2x3xf32>
  %6 = stablehlo.power %x, %y : tensor<2x3xf32>
  // CHECK-NEXT: %7 = stablehlo.and %p, %p : tensor<4xi1>
  %7 = stablehlo.and %p, %p : tensor<4xi1>
  // CHECK-NEXT: %8 = stablehlo.or %i, %i : tensor<4xi32>
  %8 = stablehlo.or %i, %i : tensor<4xi32>
  // CHECK-NEXT: %9 = stablehlo.xor %p, %p : tensor<4xi1>
  %9 = stablehlo.xor %p, %p : tensor<4xi1>
  // CHECK-NEXT: %10 = stablehlo.negate %x : tensor<2x3xf32>
  %10 = stablehlo.negate %x : tensor<2x3xf32>
  // CHECK-NEXT: %11 = stablehlo.abs %x : tensor<2x3xf32>
  %11 = stablehlo.abs %x : tensor<2x3xf32>
  // CHECK-NEXT: %12 = stablehlo.exponential %x : tensor<2x3xf32>
  %12 = stablehlo.exponential %x : tensor<2x3xf32>
  // CHECK-NEXT: %13 = stablehlo.log %x : tensor<2x3xf32>
  %13 = stablehlo.log %x : tensor<2x3xf32>
  // CHECK-NEXT: %14 = stablehlo.rsqrt %x : tensor<2x3xf32>
  %14 = stablehlo.rsqrt %x : tensor<2x3xf32>
  // CHECK-NEXT: %15 = stablehlo.sqrt %x : tensor<2x3xf32>
  %15 = stablehlo.sqrt %x : tensor<2x3xf32>
  // CHECK-NEXT: %16 = stablehlo.tanh %x : tensor<2x3xf32>
  %16 = stablehlo.tanh %x : tensor<2x3xf32>
  // CHECK-NEXT: %17 = stablehlo.sign %x : tensor<2x3xf32>
  %17 = stablehlo.sign %x : tensor<2x3xf32>
  // CHECK-NEXT: %18 = stablehlo.not %p : tensor<4xi1>
  %18 = stablehlo.not %p : tensor<4xi1>
  // CHECK-NEXT: %19 = stablehlo.is_finite %x : (tensor<2x3xf32>) -> tensor<2x3xi1>
  %19 = stablehlo.is_finite %x : (tensor<2x3xf32>) -> tensor<2x3xi1>
  // CHECK-NEXT: %20 = stablehlo.convert %p : (tensor<4xi1>) -> tensor<4xf32>
  %20 = stablehlo.convert %p : (tensor<4xi1>) -> tensor<4xf32>
  // CHECK-NEXT: %21 = stablehlo.convert %x : tensor<2x3xf32>
  %21 = stablehlo.convert %x : tensor<2x3xf32>
  // CHECK-NEXT: %22 = stablehlo.compare GT, %x, %y, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %22 = stablehlo.compare GT, %x, %y, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  // CHECK-NEXT: %23 = stablehlo.compare NE, %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
  %23 = stablehlo.compare NE, %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
  // CHECK-NEXT: %24 = stablehlo.select %22, %x, %y : tensor<2x3xi1>, tensor<2x3xf32>
  %24 = stablehlo.select %22, %x, %y : tensor<2x3xi1>, tensor<2x3xf32>
  // CHECK-NEXT: %25 = stablehlo.add %x, %y {note = "kept"} : tensor<2x3xf32>
  %25 = stablehlo.add %x, %y {note = "kept"} : tensor<2x3xf32>
  // CHECK-NEXT: %26 = chlo.erf %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %26 = chlo.erf %x : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK-NEXT: %27 = chlo.erfc %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %27 = chlo.erfc %x : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK-NEXT: %28 = chlo.square %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %28 = chlo.square %x : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}

// CHECK-LABEL: func.func public @movement
func.func public @movement(%x: tensor<2x3xf32>, %s: tensor<f32>) {
  // CHECK-NEXT: %0 = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %0 = stablehlo.iota dim = 1 : tensor<2x3xi32>
  // CHECK-NEXT: %1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4xf32>
  // CHECK-NEXT: %2 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x5x3xf32>
  %2 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x5x3xf32>
  // CHECK-NEXT: %3 = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
  %3 = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
  // CHECK-NEXT: %4 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %4 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  // CHECK-NEXT: %5 = stablehlo.reverse %x, dims = [0, 1] : tensor<2x3xf32>
  %5 = stablehlo.reverse %x, dims = [0, 1] : tensor<2x3xf32>
  // CHECK-NEXT: %6 = stablehlo.slice %x [0:1, 0:3:2] : (tensor<2x3xf32>) -> tensor<1x2xf32>
  %6 = stablehlo.slice %x [0:1, 0:3:2] : (tensor<2x3xf32>) -> tensor<1x2xf32>
  // CHECK-NEXT: %7 = stablehlo.pad %x, %s, low = [1, 0], high = [0, -1], interior = [2, 0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<5x2xf32>
  %7 = stablehlo.pad %x, %s, low = [1, 0], high = [0, -1], interior = [2, 0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<5x2xf32>
  // CHECK-NEXT: %8 = stablehlo.concatenate %x, %x, dim = 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  %8 = stablehlo.concatenate %x, %x, dim = 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  return
}

// CHECK-LABEL: func.func public @contractions
func.func public @contractions(%a: tensor<1x4xf32>, %b: tensor<4x6xf32>, %c: tensor<2x5x3xf32>, %d: tensor<2x3x5xf32>, %x: tensor<1x6x5x2xf32>, %k: tensor<3x3x2x8xf32>) {
  // CHECK-NEXT: %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<1x4xf32>, tensor<4x6xf32>) -> tensor<1x6xf32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<1x4xf32>, tensor<4x6xf32>) -> tensor<1x6xf32>
  // CHECK-NEXT: %1 = stablehlo.dot_general %c, %d, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x5x3xf32>, tensor<2x3x5xf32>) -> tensor<2x5x5xf32>
  %1 = stablehlo.dot_general %c, %d, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x5x3xf32>, tensor<2x3x5xf32>) -> tensor<2x5x5xf32>
  // CHECK-NEXT: %2 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = {{\[\[}}1, 1], [0, -1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x6x5x2xf32>, tensor<3x3x2x8xf32>) -> tensor<1x3x2x8xf32>
  %2 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[1, 1], [0, -1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x6x5x2xf32>, tensor<3x3x2x8xf32>) -> tensor<1x3x2x8xf32>
  // CHECK-NEXT: %3 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x5x2xf32>, tensor<3x3x2x8xf32>) -> tensor<1x4x3x8xf32>
  %3 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x5x2xf32>, tensor<3x3x2x8xf32>) -> tensor<1x4x3x8xf32>
  return
}

// CHECK-LABEL: func.func public @reductions
func.func public @reductions(%x: tensor<2x4x4xf32>, %s: tensor<f32>, %p: tensor<4xi1>, %t: tensor<i1>, %w: tensor<2x2x2xf32>) {
  // CHECK-NEXT: %0 = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [0, 2] : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %0 = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [0, 2] : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<4xf32>
  // CHECK-NEXT: %1 = stablehlo.reduce(%p init: %t) applies stablehlo.and across dimensions = [0] : (tensor<4xi1>, tensor<i1>) -> tensor<i1>
  %1 = stablehlo.reduce(%p init: %t) applies stablehlo.and across dimensions = [0] : (tensor<4xi1>, tensor<i1>) -> tensor<i1>
  // CHECK-NEXT: %2 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x4xf32> reducer(%a: tensor<f32>, %b: tensor<f32>) {
  // CHECK-NEXT:   %{{.*}} = stablehlo.maximum %b, %a : tensor<f32>
  // CHECK-NEXT:   stablehlo.return %{{.*}} : tensor<f32>
  // CHECK-NEXT: }
  %2 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x4xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %m = stablehlo.maximum %b, %a : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }
  // CHECK-NEXT: %{{.*}} = "stablehlo.reduce_window"(%x, %s) <{base_dilations = array<i64: 1, 1, 1>, padding = dense<{{\[\[}}0, 0], [1, 1], [0, 0]]> : tensor<3x2xi64>, window_dilations = array<i64: 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 1, 2, 2>}> ({
  // CHECK-NEXT: ^bb0(%a_1: tensor<f32>, %b_1: tensor<f32>):
  // CHECK-NEXT:   %{{.*}} = stablehlo.add %a_1, %b_1 : tensor<f32>
  // CHECK-NEXT:   stablehlo.return %{{.*}} : tensor<f32>
  // CHECK-NEXT: }) : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x3x2xf32>
  %3 = "stablehlo.reduce_window"(%x, %s) <{base_dilations = array<i64: 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [0, 0]]> : tensor<3x2xi64>, window_dilations = array<i64: 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 1, 2, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x3x2xf32>
  // CHECK-NEXT: %{{.*}} = "stablehlo.select_and_scatter"(%x, %w, %s) <{padding = dense<0> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 1, 2, 2>}> ({
  %4 = "stablehlo.select_and_scatter"(%x, %w, %s) <{padding = dense<0> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 1, 2, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %g = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<2x4x4xf32>, tensor<2x2x2xf32>, tensor<f32>) -> tensor<2x4x4xf32>
  return
}

// CHECK-LABEL: func.func public @indexing
func.func public @indexing(%x: tensor<30x8xf32>, %i: tensor<4x1xi32>, %u: tensor<4x8xf32>, %s: tensor<i32>) {
  // CHECK-NEXT: %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<30x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<30x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %1 = "stablehlo.scatter"(%x, %i, %u) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  // CHECK:      }) : (tensor<30x8xf32>, tensor<4x1xi32>, tensor<4x8xf32>) -> tensor<30x8xf32>
  %1 = "stablehlo.scatter"(%x, %i, %u) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<30x8xf32>, tensor<4x1xi32>, tensor<4x8xf32>) -> tensor<30x8xf32>
  // CHECK-NEXT: %2 = stablehlo.dynamic_slice %x, %s, %s, sizes = [2, 8] : (tensor<30x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %2 = stablehlo.dynamic_slice %x, %s, %s, sizes = [2, 8] : (tensor<30x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  // CHECK-NEXT: %3 = stablehlo.dynamic_update_slice %x, %u, %s, %s : (tensor<30x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<30x8xf32>
  %3 = stablehlo.dynamic_update_slice %x, %u, %s, %s : (tensor<30x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<30x8xf32>
  return
}
