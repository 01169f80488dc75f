// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// The weight gradient goes straight into the weights, which are updated in place.
poet.graph @main(%x: tensor<1x8x8x3xf32>, %g: tensor<1x4x4x4xf32>, %w: tensor<3x3x3x4xf32> {poet.role = "param", poet.updates = 0 : i64}) -> tensor<3x3x3x4xf32> {
  %h = poet.compute "update" (%a = %x : tensor<1x8x8x3xf32>, %b = %g : tensor<1x4x4x4xf32>, %c = %w : tensor<3x3x3x4xf32>) -> tensor<3x3x3x4xf32> inplace [[0, 2]] {
    %0 = stablehlo.convolution(%a, %b) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[0, 1], [0, 1]], rhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x3xf32>, tensor<1x4x4x4xf32>) -> tensor<3x3x3x4xf32>
    %r = stablehlo.constant dense<1.0e-2> : tensor<3x3x3x4xf32>
    %1 = stablehlo.multiply %0, %r : tensor<3x3x3x4xf32>
    %2 = stablehlo.subtract %c, %1 : tensor<3x3x3x4xf32>
    poet.yield %2 : tensor<3x3x3x4xf32>
  }
  poet.return %h : tensor<3x3x3x4xf32>
}

// CHECK:       func.func private @update(%in0: memref<1x8x8x3xf32>, %in1: memref<1x4x4x4xf32>, %in2: memref<3x3x3x4xf32>, %out0: memref<3x3x3x4xf32>) attributes {poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %c = arith.constant 1.000000e-02 : f32
// CHECK-NEXT:    affine.for %i = 0 to 3 {
// CHECK-NEXT:      affine.for %j = 0 to 3 {
// CHECK-NEXT:        affine.for %k = 0 to 3 {
// CHECK-NEXT:          affine.for %l = 0 to 4 {
// CHECK-NEXT:            %0 = affine.for %kh = 0 to 4 iter_args(%acc = %zero) -> (f32) {
// CHECK-NEXT:              %1 = "affine.if"(%i, %kh) <{condition = affine_set<(d0, d1) : ((((d0 * -1) + (d1 * -2)) + 7) >= 0)>}> ({
// CHECK-NEXT:                %2 = affine.for %kw = 0 to 4 iter_args(%acc_1 = %acc) -> (f32) {
// CHECK-NEXT:                  %3 = "affine.if"(%j, %kw) <{condition = affine_set<(d0, d1) : ((((d0 * -1) + (d1 * -2)) + 7) >= 0)>}> ({
// CHECK-NEXT:                    %4 = affine.load %in0[0, %i + %kh * 2, %j + %kw * 2, %k] : memref<1x8x8x3xf32>
// CHECK-NEXT:                    %5 = affine.load %in1[0, %kh, %kw, %l] : memref<1x4x4x4xf32>
// CHECK-NEXT:                    %6 = arith.mulf %4, %5 : f32
// CHECK-NEXT:                    %7 = arith.addf %acc_1, %6 : f32
// CHECK-NEXT:                    affine.yield %7 : f32
// CHECK-NEXT:                  }, {
// CHECK-NEXT:                    affine.yield %acc_1 : f32
// CHECK-NEXT:                  }) : (index, index) -> f32
// CHECK-NEXT:                  affine.yield %3 : f32
// CHECK-NEXT:                }
// CHECK-NEXT:                affine.yield %2 : f32
// CHECK-NEXT:              }, {
// CHECK-NEXT:                affine.yield %acc : f32
// CHECK-NEXT:              }) : (index, index) -> f32
// CHECK-NEXT:              affine.yield %1 : f32
// CHECK-NEXT:            }
// CHECK-NEXT:            %8 = arith.mulf %0, %c : f32
// CHECK-NEXT:            %9 = affine.load %in2[%i, %j, %k, %l] : memref<3x3x3x4xf32>
// CHECK-NEXT:            %10 = arith.subf %9, %8 : f32
// CHECK-NEXT:            affine.store %10, %out0[%i, %j, %k, %l] : memref<3x3x3x4xf32>
// CHECK-NEXT:          }
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
