// RUN: xdsl-opt %s -p 'stablehlo-split{params="w:3"}' | filecheck %s

// A convolution, the gradient of its image and of its kernel, in rows of the kernel: windows of
// one row each, with the padding that puts them where that row of the kernel was.

// CHECK:      func.func public @main(%x: tensor<1x4x4x2xf32>, %w: tensor<1x3x2x2xf32> {tf.aliasing_output = 1 : i32, poet.shard = array<i64: 1, 0, 0>}, %w_1: tensor<1x3x2x2xf32> {tf.aliasing_output = 2 : i32, poet.shard = array<i64: 1, 0, 1>}, %w_2: tensor<1x3x2x2xf32> {tf.aliasing_output = 3 : i32, poet.shard = array<i64: 1, 0, 2>}) -> (tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32> {jax.result_info = "w"}, tensor<1x3x2x2xf32> {jax.result_info = "w"}, tensor<1x3x2x2xf32> {jax.result_info = "w"}) {
// CHECK-NEXT:   %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, -1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:   %1 = resume.convolution(%0, %x, %w_1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[0, 0], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:   %y = resume.convolution(%1, %x, %w_2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[-1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:   %f = stablehlo.reverse %w_2, dims = [0, 1] : tensor<1x3x2x2xf32>
// CHECK-NEXT:   %f_1 = stablehlo.reverse %w_1, dims = [0, 1] : tensor<1x3x2x2xf32>
// CHECK-NEXT:   %f_2 = stablehlo.reverse %w, dims = [0, 1] : tensor<1x3x2x2xf32>
// CHECK-NEXT:   %2 = stablehlo.convolution(%y, %f) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {pad = [[1, -1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:   %3 = resume.convolution(%2, %y, %f_1) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {pad = [[0, 0], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:   %d = resume.convolution(%3, %y, %f_2) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {pad = [[-1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK-NEXT:   %4 = stablehlo.convolution(%x, %y) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[1, -1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) -> tensor<1x3x2x2xf32>
// CHECK-NEXT:   %n = stablehlo.subtract %w, %4 : tensor<1x3x2x2xf32>
// CHECK-NEXT:   %5 = stablehlo.convolution(%x, %y) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[0, 0], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) -> tensor<1x3x2x2xf32>
// CHECK-NEXT:   %n_1 = stablehlo.subtract %w_1, %5 : tensor<1x3x2x2xf32>
// CHECK-NEXT:   %6 = stablehlo.convolution(%x, %y) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[-1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) -> tensor<1x3x2x2xf32>
// CHECK-NEXT:   %n_2 = stablehlo.subtract %w_2, %6 : tensor<1x3x2x2xf32>
// CHECK-NEXT:   func.return %d, %n, %n_1, %n_2 : tensor<1x4x4x2xf32>, tensor<1x3x2x2xf32>, tensor<1x3x2x2xf32>, tensor<1x3x2x2xf32>
// CHECK-NEXT: }

func.func public @main(%x: tensor<1x4x4x2xf32>, %w: tensor<3x3x2x2xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<1x4x4x2xf32>, tensor<3x3x2x2xf32> {jax.result_info = "w"}) {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<3x3x2x2xf32>) -> tensor<1x4x4x2xf32>
  %f = stablehlo.reverse %w, dims = [0, 1] : tensor<3x3x2x2xf32>
  %d = stablehlo.convolution(%y, %f) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<3x3x2x2xf32>) -> tensor<1x4x4x2xf32>
  %g = stablehlo.convolution(%x, %y) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) -> tensor<3x3x2x2xf32>
  %n = stablehlo.subtract %w, %g : tensor<3x3x2x2xf32>
  return %d, %n : tensor<1x4x4x2xf32>, tensor<3x3x2x2xf32>
}
