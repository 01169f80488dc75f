// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// The element that a window chose is found once for all elements of the window.
poet.graph @main(%x: tensor<1x8x8x3xf32>, %g: tensor<1x4x4x3xf32>) -> tensor<1x8x8x3xf32> {
  %h = poet.compute "pool" (%a = %x : tensor<1x8x8x3xf32>, %b = %g : tensor<1x4x4x3xf32>) -> tensor<1x8x8x3xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.select_and_scatter"(%a, %b, %zero) <{padding = dense<0> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.compare GE, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }, {
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<1x8x8x3xf32>, tensor<1x4x4x3xf32>, tensor<f32>) -> tensor<1x8x8x3xf32>
    poet.yield %0 : tensor<1x8x8x3xf32>
  }
  poet.return %h : tensor<1x8x8x3xf32>
}

// CHECK:       func.func private @pool(%in0: memref<1x8x8x3xf32>, %in1: memref<1x4x4x3xf32>, %out0: memref<1x8x8x3xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %zero_1 = arith.constant 0 : index
// CHECK-NEXT:    affine.for %i = 0 to 4 {
// CHECK-NEXT:      affine.for %j = 0 to 4 {
// CHECK-NEXT:        affine.for %k = 0 to 3 {
// CHECK-NEXT:          %0 = affine.load %in0[0, %i * 2, %j * 2, %k] : memref<1x8x8x3xf32>
// CHECK-NEXT:          %1, %2 = affine.for %w = 0 to 2 iter_args(%acc = %0, %acc_1 = %zero_1) -> (f32, index) {
// CHECK-NEXT:            %3, %4 = affine.for %w_1 = 0 to 2 iter_args(%acc_2 = %acc, %acc_3 = %acc_1) -> (f32, index) {
// CHECK-NEXT:              %5 = affine.load %in0[0, %i * 2 + %w, %j * 2 + %w_1, %k] : memref<1x8x8x3xf32>
// CHECK-NEXT:              %6 = arith.cmpf oge, %acc_2, %5 : f32
// CHECK-NEXT:              %7 = affine.apply affine_map<(d0, d1) -> (((d0 * 2) + d1))> (%w, %w_1)
// CHECK-NEXT:              %8 = arith.select %6, %acc_2, %5 : f32
// CHECK-NEXT:              %9 = arith.select %6, %acc_3, %7 : index
// CHECK-NEXT:              affine.yield %8, %9 : f32, index
// CHECK-NEXT:            }
// CHECK-NEXT:            affine.yield %3, %4 : f32, index
// CHECK-NEXT:          }
// CHECK-NEXT:          %10 = affine.load %in1[0, %i, %j, %k] : memref<1x4x4x3xf32>
// CHECK-NEXT:          %11 = arith.addf %zero, %10 : f32
// CHECK-NEXT:          affine.for %l = 0 to 2 {
// CHECK-NEXT:            affine.for %m = 0 to 2 {
// CHECK-NEXT:              %12 = affine.apply affine_map<(d0, d1) -> (((d0 * 2) + d1))> (%l, %m)
// CHECK-NEXT:              %13 = arith.cmpi eq, %2, %12 : index
// CHECK-NEXT:              %14 = arith.select %13, %11, %zero : f32
// CHECK-NEXT:              affine.store %14, %out0[0, %i * 2 + %l, %j * 2 + %m, %k] : memref<1x8x8x3xf32>
// CHECK-NEXT:            }
// CHECK-NEXT:          }
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
