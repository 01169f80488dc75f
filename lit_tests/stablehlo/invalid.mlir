// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

// CHECK: operand 1 is tensor<3xf32>, expected tensor<2xf32>
%x, %y = "test.op"() : () -> (tensor<2xf32>, tensor<3xf32>)
%0 = "stablehlo.add"(%x, %y) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>

// -----

// CHECK: operand 0 has elements of type i1, expected f32 or {{.*}} or i32
%x = "test.op"() : () -> tensor<2xi1>
%0 = stablehlo.subtract %x, %x : tensor<2xi1>

// -----

// CHECK: operand 0 has elements of type f64, supported are f32,
%x = "test.op"() : () -> tensor<2xf64>
%0 = stablehlo.negate %x : tensor<2xf64>

// -----

// CHECK: operand 0 has the dynamic shape tensor<?xf32>
%x = "test.op"() : () -> tensor<?xf32>
%0 = stablehlo.negate %x : tensor<?xf32>

// -----

// CHECK: compare type SIGNED does not fit f32, expected FLOAT
%x = "test.op"() : () -> tensor<2xf32>
%0 = stablehlo.compare LT, %x, %x, SIGNED : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>

// -----

// CHECK: operand dimension 0 of size 2 cannot become result dimension 1 of size 3
%x = "test.op"() : () -> tensor<2xf32>
%0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<2xf32>) -> tensor<2x3xf32>

// -----

// CHECK: cannot reshape 6 elements to 5
%x = "test.op"() : () -> tensor<2x3xf32>
%0 = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<5xf32>

// -----

// CHECK: dims = [0, 0] must be distinct dimensions of a tensor of rank 2
%x = "test.op"() : () -> tensor<2x3xf32>
%0 = stablehlo.transpose %x, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<2x2xf32>

// -----

// CHECK: slice 1:4 is outside dimension 0 of size 3
%x = "test.op"() : () -> tensor<3xf32>
%0 = stablehlo.slice %x [1:4] : (tensor<3xf32>) -> tensor<3xf32>

// -----

// CHECK: result is tensor<6xf32>, expected tensor<5xf32>
%x, %s = "test.op"() : () -> (tensor<3xf32>, tensor<f32>)
%0 = stablehlo.pad %x, %s, low = [0], high = [0], interior = [1] : (tensor<3xf32>, tensor<f32>) -> tensor<6xf32>

// -----

// CHECK: operand 1 is tensor<3x2xf32>, which does not fit tensor<2x2xf32>
%x, %y = "test.op"() : () -> (tensor<2x2xf32>, tensor<3x2xf32>)
%0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<2x2xf32>, tensor<3x2xf32>) -> tensor<2x4xf32>

// -----

// CHECK: contracting dimensions [1] of tensor<1x4xf32> and [0] of tensor<5x6xf32> differ in size
%x, %y = "test.op"() : () -> (tensor<1x4xf32>, tensor<5x6xf32>)
%0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<1x4xf32>, tensor<5x6xf32>) -> tensor<1x6xf32>

// -----

// CHECK: kernel has 3 input features in 1 groups, input has 2
%x, %k = "test.op"() : () -> (tensor<1x5x5x2xf32>, tensor<3x3x3x8xf32>)
%0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x5x2xf32>, tensor<3x3x3x8xf32>) -> tensor<1x3x3x8xf32>

// -----

// CHECK: window reversal has 1 entries, expected 2
%x, %k = "test.op"() : () -> (tensor<1x5x5x2xf32>, tensor<3x3x2x8xf32>)
%0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x5x2xf32>, tensor<3x3x2x8xf32>) -> tensor<1x3x3x8xf32>

// -----

// CHECK: the body returns tensor<f32>, expected tensor<f32>, tensor<f32>
%x, %s = "test.op"() : () -> (tensor<3xf32>, tensor<f32>)
%0:2 = stablehlo.reduce(%x init: %s), (%x init: %s) across dimensions = [0] : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
 reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<f32>, %d: tensor<f32>) {
  stablehlo.return %a : tensor<f32>
}

// -----

// CHECK: the body must be one of add, multiply, maximum, minimum, and, or, xor of its two arguments
%x, %s = "test.op"() : () -> (tensor<3xf32>, tensor<f32>)
%0 = "stablehlo.reduce_window"(%x, %s) <{window_dimensions = array<i64: 2>}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %m = stablehlo.subtract %a, %b : tensor<f32>
  stablehlo.return %m : tensor<f32>
}) : (tensor<3xf32>, tensor<f32>) -> tensor<2xf32>

// -----

// CHECK: init is tensor<1xf32>, expected tensor<f32>
%x, %s = "test.op"() : () -> (tensor<3xf32>, tensor<1xf32>)
%0 = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<1xf32>) -> tensor<f32>

// -----

// CHECK: source is tensor<3xf32>, expected tensor<2xf32>
%x, %y, %s = "test.op"() : () -> (tensor<4xf32>, tensor<3xf32>, tensor<f32>)
%0 = "stablehlo.select_and_scatter"(%x, %y, %s) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %g = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %g : tensor<i1>
}, {
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %m = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %m : tensor<f32>
}) : (tensor<4xf32>, tensor<3xf32>, tensor<f32>) -> tensor<4xf32>

// -----

// CHECK: slice size 9 of dimension 1 exceeds 8
%x, %i = "test.op"() : () -> (tensor<30x8xf32>, tensor<4x1xi32>)
%0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 9>}> : (tensor<30x8xf32>, tensor<4x1xi32>) -> tensor<4x9xf32>

// -----

// CHECK: updates tensor<5x8xf32> do not fit indices tensor<4x1xi32>
%x, %i, %u = "test.op"() : () -> (tensor<30x8xf32>, tensor<4x1xi32>, tensor<5x8xf32>)
%0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %m = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %m : tensor<f32>
}) : (tensor<30x8xf32>, tensor<4x1xi32>, tensor<5x8xf32>) -> tensor<30x8xf32>

// -----

// CHECK: dense literal has shape [2], its type is tensor<3xf32>
%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<3xf32>

// -----

// CHECK: float bits do not fit in f32
%0 = stablehlo.constant dense<0x1FF800000> : tensor<f32>

// -----

// CHECK: window size 4 of dimension 0 exceeds 3
%x, %i = "test.op"() : () -> (tensor<3xf32>, tensor<i32>)
%0 = stablehlo.dynamic_slice %x, %i, sizes = [4] : (tensor<3xf32>, tensor<i32>) -> tensor<4xf32>

// -----

// CHECK: start indices has 1 entries, expected 2
%x, %u, %i = "test.op"() : () -> (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>)
%0 = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>) -> tensor<3x4xf32>

// -----

// CHECK: the condition returns tensor<f32>, expected tensor<i1>
%x = "test.op"() : () -> tensor<f32>
%0 = stablehlo.while(%a = %x) : tensor<f32> cond {
  stablehlo.return %a : tensor<f32>
} do {
  stablehlo.return %a : tensor<f32>
}

// -----

// CHECK: branch 1 returns tensor<2xf32>, expected tensor<3xf32>
%p, %x, %y = "test.op"() : () -> (tensor<i1>, tensor<3xf32>, tensor<2xf32>)
%0 = "stablehlo.if"(%p) ({
  stablehlo.return %x : tensor<3xf32>
}, {
  stablehlo.return %y : tensor<2xf32>
}) : (tensor<i1>) -> tensor<3xf32>
