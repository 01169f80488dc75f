// RUN: xdsl-opt %s -p poet-lower-kernels | xdsl-opt | filecheck %s

// A contraction and a convolution that go on with sums: the loop starts from what is there.

// CHECK-LABEL: func.func private @dot
// CHECK:         affine.for %i = 0 to 2 {
// CHECK-NEXT:      affine.for %j = 0 to 4 {
// CHECK-NEXT:        %[[INIT:[0-9]+]] = affine.load %in0[%i, %j] : memref<2x4xf32>
// CHECK-NEXT:        %{{[0-9]+}} = affine.for %r = 0 to 3 iter_args(%acc = %[[INIT]]) -> (f32) {
poet.graph @main(%y: tensor<2x4xf32>, %a: tensor<2x3xf32>, %b: tensor<3x4xf32>, %z: tensor<1x4x2xf32>, %x: tensor<1x4x2xf32>, %k: tensor<2x2x2xf32>) -> (tensor<2x4xf32>, tensor<1x4x2xf32>) {
  %0 = poet.compute "dot" (%init = %y : tensor<2x4xf32>, %lhs = %a : tensor<2x3xf32>, %rhs = %b : tensor<3x4xf32>) -> tensor<2x4xf32> {
    %1 = resume.dot_general %init, %lhs, %rhs, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    poet.yield %1 : tensor<2x4xf32>
  }
  // CHECK-LABEL: func.func private @conv
  // CHECK:         %[[FROM:[0-9]+]] = affine.load %in0[0, %i, %j] : memref<1x4x2xf32>
  // CHECK-NEXT:    %{{[0-9]+}} = affine.for %k = 0 to 2 iter_args(%acc = %[[FROM]]) -> (f32) {
  %2 = poet.compute "conv" (%init = %z : tensor<1x4x2xf32>, %lhs = %x : tensor<1x4x2xf32>, %rhs = %k : tensor<2x2x2xf32>) -> tensor<1x4x2xf32> {
    %3 = resume.convolution(%init, %lhs, %rhs) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x2xf32>, tensor<1x4x2xf32>, tensor<2x2x2xf32>) -> tensor<1x4x2xf32>
    poet.yield %3 : tensor<1x4x2xf32>
  }
  poet.return %0, %2 : tensor<2x4xf32>, tensor<1x4x2xf32>
}
