// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// Channels are outermost, so that both statistics are complete before the elements that need them.
poet.graph @main(%x: tensor<2x4x4x3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2x4x4x3xf32>) {
  %m, %v, %y = poet.compute "norm" (%a = %x : tensor<2x4x4x3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2x4x4x3xf32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %count = stablehlo.constant dense<3.2e1> : tensor<3xf32>
    %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x4x4x3xf32>, tensor<f32>) -> tensor<3xf32>
    %1 = stablehlo.divide %0, %count : tensor<3xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [3] : (tensor<3xf32>) -> tensor<2x4x4x3xf32>
    %3 = stablehlo.subtract %a, %2 : tensor<2x4x4x3xf32>
    %4 = stablehlo.multiply %3, %3 : tensor<2x4x4x3xf32>
    %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x4x4x3xf32>, tensor<f32>) -> tensor<3xf32>
    %6 = stablehlo.divide %5, %count : tensor<3xf32>
    %7 = stablehlo.rsqrt %6 : tensor<3xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [3] : (tensor<3xf32>) -> tensor<2x4x4x3xf32>
    %9 = stablehlo.multiply %3, %8 : tensor<2x4x4x3xf32>
    poet.yield %1, %6, %9 : tensor<3xf32>, tensor<3xf32>, tensor<2x4x4x3xf32>
  }
  poet.return %m, %v, %y : tensor<3xf32>, tensor<3xf32>, tensor<2x4x4x3xf32>
}

// CHECK:       func.func private @norm(%in0: memref<2x4x4x3xf32>, %out0: memref<3xf32>, %out1: memref<3xf32>, %out2: memref<2x4x4x3xf32>) attributes {poet.inputs = 1 : i64, poet.results = 3 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %c = arith.constant 3.200000e+01 : f32
// CHECK-NEXT:    affine.for %i = 0 to 3 {
// CHECK-NEXT:      %0 = affine.for %r = 0 to 2 iter_args(%acc = %zero) -> (f32) {
// CHECK-NEXT:        %1 = affine.for %r_1 = 0 to 4 iter_args(%acc_1 = %acc) -> (f32) {
// CHECK-NEXT:          %2 = affine.for %r_2 = 0 to 4 iter_args(%acc_2 = %acc_1) -> (f32) {
// CHECK-NEXT:            %3 = affine.load %in0[%r, %r_1, %r_2, %i] : memref<2x4x4x3xf32>
// CHECK-NEXT:            %4 = arith.addf %acc_2, %3 : f32
// CHECK-NEXT:            affine.yield %4 : f32
// CHECK-NEXT:          }
// CHECK-NEXT:          affine.yield %2 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        affine.yield %1 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %5 = arith.divf %0, %c : f32
// CHECK-NEXT:      %6 = affine.for %r_3 = 0 to 2 iter_args(%acc_3 = %zero) -> (f32) {
// CHECK-NEXT:        %7 = affine.for %r_4 = 0 to 4 iter_args(%acc_4 = %acc_3) -> (f32) {
// CHECK-NEXT:          %8 = affine.for %r_5 = 0 to 4 iter_args(%acc_5 = %acc_4) -> (f32) {
// CHECK-NEXT:            %9 = affine.load %in0[%r_3, %r_4, %r_5, %i] : memref<2x4x4x3xf32>
// CHECK-NEXT:            %10 = arith.subf %9, %5 : f32
// CHECK-NEXT:            %11 = arith.mulf %10, %10 : f32
// CHECK-NEXT:            %12 = arith.addf %acc_5, %11 : f32
// CHECK-NEXT:            affine.yield %12 : f32
// CHECK-NEXT:          }
// CHECK-NEXT:          affine.yield %8 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        affine.yield %7 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %13 = arith.divf %6, %c : f32
// CHECK-NEXT:      affine.store %5, %out0[%i] : memref<3xf32>
// CHECK-NEXT:      affine.store %13, %out1[%i] : memref<3xf32>
// CHECK-NEXT:      %14 = math.rsqrt %13 : f32
// CHECK-NEXT:      affine.for %j = 0 to 2 {
// CHECK-NEXT:        affine.for %k = 0 to 4 {
// CHECK-NEXT:          affine.for %l = 0 to 4 {
// CHECK-NEXT:            %15 = affine.load %in0[%j, %k, %l, %i] : memref<2x4x4x3xf32>
// CHECK-NEXT:            %16 = arith.subf %15, %5 : f32
// CHECK-NEXT:            %17 = arith.mulf %16, %14 : f32
// CHECK-NEXT:            affine.store %17, %out2[%j, %k, %l, %i] : memref<2x4x4x3xf32>
// CHECK-NEXT:          }
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
