// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// One nest over the rows: the maximum, the sum, the elements. It may run in place.
poet.graph @main(%x: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %p = poet.compute "softmax" (%a = %x : tensor<4x64xf32>) -> tensor<4x64xf32> inplace [[0, 0]] {
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
    %2 = stablehlo.subtract %a, %1 : tensor<4x64xf32>
    %3 = stablehlo.exponential %2 : tensor<4x64xf32>
    %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
    %6 = stablehlo.divide %3, %5 : tensor<4x64xf32>
    poet.yield %6 : tensor<4x64xf32>
  }
  poet.return %p : tensor<4x64xf32>
}

// CHECK:       func.func private @softmax(%in0: memref<4x64xf32>, %out0: memref<4x64xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %neg_inf = arith.constant 0xff800000 : f32
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %neg_zero = arith.constant -0.000000e+00 : f32
// CHECK-NEXT:    affine.for %i = 0 to 4 {
// CHECK-NEXT:      %0 = affine.for %r = 0 to 64 iter_args(%acc = %neg_inf) -> (f32) {
// CHECK-NEXT:        %1 = affine.load %in0[%i, %r] : memref<4x64xf32>
// CHECK-NEXT:        %2 = arith.maximumf %acc, %1 : f32
// CHECK-NEXT:        affine.yield %2 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %3 = affine.for %rb = 0 to 2 iter_args(%acc_1 = %zero) -> (f32) {
// CHECK-NEXT:        %4 = affine.for %r_1 = 0 to 32 iter_args(%acc_2 = %neg_zero) -> (f32) {
// CHECK-NEXT:          %5 = affine.load %in0[%i, %rb * 32 + %r_1] : memref<4x64xf32>
// CHECK-NEXT:          %6 = arith.subf %5, %0 : f32
// CHECK-NEXT:          %7 = math.exp %6 : f32
// CHECK-NEXT:          %8 = arith.addf %acc_2, %7 : f32
// CHECK-NEXT:          affine.yield %8 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %9 = arith.addf %acc_1, %4 : f32
// CHECK-NEXT:        affine.yield %9 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      affine.for %j = 0 to 64 {
// CHECK-NEXT:        %10 = affine.load %in0[%i, %j] : memref<4x64xf32>
// CHECK-NEXT:        %11 = arith.subf %10, %0 : f32
// CHECK-NEXT:        %12 = math.exp %11 : f32
// CHECK-NEXT:        %13 = arith.divf %12, %3 : f32
// CHECK-NEXT:        affine.store %13, %out0[%i, %j] : memref<4x64xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
