// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// Bias and activation are the epilogue of the product.
poet.graph @main(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>, %b: tensor<32xf32>) -> tensor<1x32xf32> {
  %h = poet.compute "dot_relu" (%a = %x : tensor<1x64xf32>, %c = %w : tensor<64x32xf32>, %d = %b : tensor<32xf32>) -> tensor<1x32xf32> {
    %0 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0] : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
    %1 = stablehlo.broadcast_in_dim %d, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %2 = stablehlo.add %0, %1 : tensor<1x32xf32>
    %z = stablehlo.constant dense<0.0> : tensor<1x32xf32>
    %3 = stablehlo.maximum %2, %z : tensor<1x32xf32>
    poet.yield %3 : tensor<1x32xf32>
  }
  poet.return %h : tensor<1x32xf32>
}

// CHECK:       func.func private @dot_relu(%in0: memref<1x64xf32>, %in1: memref<64x32xf32>, %in2: memref<32xf32>, %out0: memref<1x32xf32>) attributes {poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %neg_zero = arith.constant -0.000000e+00 : f32
// CHECK-NEXT:    affine.for %i = 0 to 32 {
// CHECK-NEXT:      %0 = affine.for %rb = 0 to 2 iter_args(%acc = %zero) -> (f32) {
// CHECK-NEXT:        %1 = affine.for %r = 0 to 32 iter_args(%acc_1 = %neg_zero) -> (f32) {
// CHECK-NEXT:          %2 = affine.load %in0[0, %rb * 32 + %r] : memref<1x64xf32>
// CHECK-NEXT:          %3 = affine.load %in1[%rb * 32 + %r, %i] : memref<64x32xf32>
// CHECK-NEXT:          %4 = arith.mulf %2, %3 : f32
// CHECK-NEXT:          %5 = arith.addf %acc_1, %4 : f32
// CHECK-NEXT:          affine.yield %5 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %6 = arith.addf %acc, %1 : f32
// CHECK-NEXT:        affine.yield %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %7 = affine.load %in2[%i] : memref<32xf32>
// CHECK-NEXT:      %8 = arith.addf %0, %7 : f32
// CHECK-NEXT:      %9 = arith.maximumf %8, %zero : f32
// CHECK-NEXT:      affine.store %9, %out0[0, %i] : memref<1x32xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
