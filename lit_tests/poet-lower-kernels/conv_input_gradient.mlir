// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// Gradient of a strided convolution by its input: reverse, transpose and the dilation of the gradient
// become index maps and guards, nothing is copied. Of the window, only what does not meet a hole is run
// over: the dilation is solved for the position in it, and loops are split so that nothing is divided.
poet.graph @main(%g: tensor<1x4x4x4xf32>, %w: tensor<3x3x3x4xf32>) -> tensor<1x8x8x3xf32> {
  %h = poet.compute "conv" (%a = %g : tensor<1x4x4x4xf32>, %b = %w : tensor<3x3x3x4xf32>) -> tensor<1x8x8x3xf32> {
    %0 = stablehlo.reverse %b, dims = [0, 1] : tensor<3x3x3x4xf32>
    %1 = stablehlo.convolution(%a, %0) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {pad = [[2, 1], [2, 1]], lhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x4xf32>, tensor<3x3x3x4xf32>) -> tensor<1x8x8x3xf32>
    poet.yield %1 : tensor<1x8x8x3xf32>
  }
  poet.return %h : tensor<1x8x8x3xf32>
}

// CHECK:       func.func private @conv(%in0: memref<1x4x4x4xf32>, %in1: memref<3x3x3x4xf32>, %out0: memref<1x8x8x3xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %neg_zero = arith.constant -0.000000e+00 : f32
// CHECK-NEXT:    affine.for %i = 0 to 4 {
// CHECK-NEXT:      affine.for %j = 0 to 2 {
// CHECK-NEXT:        affine.for %k = 0 to 4 {
// CHECK-NEXT:          affine.for %l = 0 to 2 {
// CHECK-NEXT:            affine.for %m = 0 to 3 {
// CHECK-NEXT:              %0 = affine.for %kh = 0 to 2 iter_args(%acc = %zero) -> (f32) {
// CHECK-NEXT:                %1 = "affine.if"(%i, %j, %kh) <{condition = affine_set<(d0, d1, d2) : ((((d0 + d1) + d2) + -1) >= 0, ((((d0 * -1) + (d1 * -1)) + (d2 * -1)) + 4) >= 0, (((d1 * -1) + (d2 * -2)) + 2) >= 0)>}> ({
// CHECK-NEXT:                  %2 = affine.for %kw = 0 to 2 iter_args(%acc_1 = %neg_zero) -> (f32) {
// CHECK-NEXT:                    %3 = "affine.if"(%k, %l, %kw) <{condition = affine_set<(d0, d1, d2) : ((((d0 + d1) + d2) + -1) >= 0, ((((d0 * -1) + (d1 * -1)) + (d2 * -1)) + 4) >= 0, (((d1 * -1) + (d2 * -2)) + 2) >= 0)>}> ({
// CHECK-NEXT:                      %4 = affine.for %c = 0 to 4 iter_args(%acc_2 = %acc_1) -> (f32) {
// CHECK-NEXT:                        %5 = affine.load %in0[0, %i + %j + %kh + -1, %k + %l + %kw + -1, %c] : memref<1x4x4x4xf32>
// CHECK-NEXT:                        %6 = affine.load %in1[%j * -1 + %kh * -2 + 2, %l * -1 + %kw * -2 + 2, %m, %c] : memref<3x3x3x4xf32>
// CHECK-NEXT:                        %7 = arith.mulf %5, %6 : f32
// CHECK-NEXT:                        %8 = arith.addf %acc_2, %7 : f32
// CHECK-NEXT:                        affine.yield %8 : f32
// CHECK-NEXT:                      }
// CHECK-NEXT:                      affine.yield %4 : f32
// CHECK-NEXT:                    }, {
// CHECK-NEXT:                      affine.yield %acc_1 : f32
// CHECK-NEXT:                    }) : (index, index, index) -> f32
// CHECK-NEXT:                    affine.yield %3 : f32
// CHECK-NEXT:                  }
// CHECK-NEXT:                  %9 = arith.addf %acc, %2 : f32
// CHECK-NEXT:                  affine.yield %9 : f32
// CHECK-NEXT:                }, {
// CHECK-NEXT:                  affine.yield %acc : f32
// CHECK-NEXT:                }) : (index, index, index) -> f32
// CHECK-NEXT:                affine.yield %1 : f32
// CHECK-NEXT:              }
// CHECK-NEXT:              affine.store %0, %out0[0, %i * 2 + %j, %k * 2 + %l, %m] : memref<1x8x8x3xf32>
// CHECK-NEXT:            }
// CHECK-NEXT:          }
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
