// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// Transposes beside dot_general and convolution become renamed dimensions.

// CHECK-LABEL: func.func public @transposed_product(%a: tensor<5x2xf32>, %b: tensor<5x3xf32>) -> tensor<3x2xf32> {
// CHECK-NEXT:    %r = stablehlo.dot_general %b, %a, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<5x3xf32>, tensor<5x2xf32>) -> tensor<3x2xf32>
// CHECK-NEXT:    func.return %r : tensor<3x2xf32>
// CHECK-NEXT:  }
func.func public @transposed_product(%a: tensor<5x2xf32>, %b: tensor<5x3xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<5x2xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
  %r = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %r : tensor<3x2xf32>
}

// CHECK-LABEL: func.func public @transposed_product_used_twice_stays(%a: tensor<5x2xf32>, %b: tensor<5x3xf32>) -> (tensor<3x2xf32>, tensor<2x3xf32>) {
// CHECK-NEXT:    %s = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<5x2xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:    %r = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
// CHECK-NEXT:    func.return %r, %s : tensor<3x2xf32>, tensor<2x3xf32>
// CHECK-NEXT:  }
func.func public @transposed_product_used_twice_stays(%a: tensor<5x2xf32>, %b: tensor<5x3xf32>) -> (tensor<3x2xf32>, tensor<2x3xf32>) {
  %s = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<5x2xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
  %r = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %r, %s : tensor<3x2xf32>, tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @product_of_transposed(%a: tensor<5x2xf32>, %b: tensor<5x3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:    %r = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<5x2xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:    func.return %r : tensor<2x3xf32>
// CHECK-NEXT:  }
func.func public @product_of_transposed(%a: tensor<5x2xf32>, %b: tensor<5x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<5x2xf32>) -> tensor<2x5xf32>
  %r = stablehlo.dot_general %0, %b, contracting_dims = [1] x [0] : (tensor<2x5xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @product_of_heads(%a: tensor<7x2x4xf32>, %b: tensor<7x2x4xf32>) -> tensor<2x7x7xf32> {
// CHECK-NEXT:    %r = stablehlo.dot_general %a, %b, batching_dims = [1] x [1], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<7x2x4xf32>, tensor<7x2x4xf32>) -> tensor<2x7x7xf32>
// CHECK-NEXT:    func.return %r : tensor<2x7x7xf32>
// CHECK-NEXT:  }
func.func public @product_of_heads(%a: tensor<7x2x4xf32>, %b: tensor<7x2x4xf32>) -> tensor<2x7x7xf32> {
  %0 = stablehlo.transpose %a, dims = [1, 0, 2] : (tensor<7x2x4xf32>) -> tensor<2x7x4xf32>
  %1 = stablehlo.transpose %b, dims = [1, 2, 0] : (tensor<7x2x4xf32>) -> tensor<2x4x7xf32>
  %r = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x7x4xf32>, tensor<2x4x7xf32>) -> tensor<2x7x7xf32>
  return %r : tensor<2x7x7xf32>
}

// CHECK-LABEL: func.func public @free_dimensions_out_of_order_stay(%a: tensor<2x3x5xf32>, %b: tensor<5x4xf32>) -> tensor<3x2x4xf32> {
// CHECK-NEXT:    %0 = stablehlo.transpose %a, dims = [1, 0, 2] : (tensor<2x3x5xf32>) -> tensor<3x2x5xf32>
// CHECK-NEXT:    %r = stablehlo.dot_general %0, %b, contracting_dims = [2] x [0] : (tensor<3x2x5xf32>, tensor<5x4xf32>) -> tensor<3x2x4xf32>
// CHECK-NEXT:    func.return %r : tensor<3x2x4xf32>
// CHECK-NEXT:  }
func.func public @free_dimensions_out_of_order_stay(%a: tensor<2x3x5xf32>, %b: tensor<5x4xf32>) -> tensor<3x2x4xf32> {
  %0 = stablehlo.transpose %a, dims = [1, 0, 2] : (tensor<2x3x5xf32>) -> tensor<3x2x5xf32>
  %r = stablehlo.dot_general %0, %b, contracting_dims = [2] x [0] : (tensor<3x2x5xf32>, tensor<5x4xf32>) -> tensor<3x2x4xf32>
  return %r : tensor<3x2x4xf32>
}

// CHECK-LABEL: func.func public @convolution(%x: tensor<1x3x8x8xf32>, %k: tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32> {
// CHECK-NEXT:    %r = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = {{\[\[}}0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
// CHECK-NEXT:    func.return %r : tensor<1x4x6x6xf32>
// CHECK-NEXT:  }
func.func public @convolution(%x: tensor<1x3x8x8xf32>, %k: tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32> {
  %0 = stablehlo.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x3x8x8xf32>) -> tensor<1x8x8x3xf32>
  %1 = stablehlo.transpose %k, dims = [2, 3, 1, 0] : (tensor<4x3x3x3xf32>) -> tensor<3x3x3x4xf32>
  %2 = stablehlo.convolution(%0, %1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x6x6x4xf32>
  %r = stablehlo.transpose %2, dims = [0, 3, 1, 2] : (tensor<1x6x6x4xf32>) -> tensor<1x4x6x6xf32>
  return %r : tensor<1x4x6x6xf32>
}
