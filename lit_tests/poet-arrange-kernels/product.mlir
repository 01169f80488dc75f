// RUN: xdsl-opt %s -p poet-arrange-kernels | filecheck %s

// Two columns at a time, for which the row is loaded once, and two terms of each sum, one after the other.
poet.graph @main(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>) -> tensor<1x32xf32> {
  %h = poet.compute "dot" (%a = %x : tensor<1x64xf32>, %c = %w : tensor<64x32xf32>) -> tensor<1x32xf32> kernel @dot {
    %0 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0] : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
    poet.yield %0 : tensor<1x32xf32>
  }
  poet.return %h : tensor<1x32xf32>
}
func.func private @dot(%in0: memref<1x64xf32>, %in1: memref<64x32xf32>, %out0: memref<1x32xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  affine.for %i = 0 to 32 {
    %0 = affine.for %r = 0 to 64 iter_args(%acc = %zero) -> (f32) {
      %1 = affine.load %in0[0, %r] : memref<1x64xf32>
      %2 = affine.load %in1[%r, %i] : memref<64x32xf32>
      %3 = arith.mulf %1, %2 : f32
      %4 = arith.addf %acc, %3 : f32
      affine.yield %4 : f32
    }
    affine.store %0, %out0[0, %i] : memref<1x32xf32>
  }
  func.return
}

// CHECK:        func.func private @dot(%in0: memref<1x64xf32>, %in1: memref<64x32xf32>, %out0: memref<1x32xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:     %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:     affine.for %i = 0 to 16 {
// CHECK-NEXT:       %0, %1 = affine.for %r = 0 to 32 iter_args(%acc = %zero, %acc_1 = %zero) -> (f32, f32) {
// CHECK-NEXT:         %2 = affine.load %in0[0, %r * 2] : memref<1x64xf32>
// CHECK-NEXT:         %3 = affine.load %in1[%r * 2, %i * 2] : memref<64x32xf32>
// CHECK-NEXT:         %4 = affine.load %in1[%r * 2, %i * 2 + 1] : memref<64x32xf32>
// CHECK-NEXT:         %5 = arith.mulf %2, %3 : f32
// CHECK-NEXT:         %6 = arith.mulf %2, %4 : f32
// CHECK-NEXT:         %7 = arith.addf %acc, %5 : f32
// CHECK-NEXT:         %8 = arith.addf %acc_1, %6 : f32
// CHECK-NEXT:         %9 = affine.load %in0[0, %r * 2 + 1] : memref<1x64xf32>
// CHECK-NEXT:         %10 = affine.load %in1[%r * 2 + 1, %i * 2] : memref<64x32xf32>
// CHECK-NEXT:         %11 = affine.load %in1[%r * 2 + 1, %i * 2 + 1] : memref<64x32xf32>
// CHECK-NEXT:         %12 = arith.mulf %9, %10 : f32
// CHECK-NEXT:         %13 = arith.mulf %9, %11 : f32
// CHECK-NEXT:         %14 = arith.addf %7, %12 : f32
// CHECK-NEXT:         %15 = arith.addf %8, %13 : f32
// CHECK-NEXT:         affine.yield %14, %15 : f32, f32
// CHECK-NEXT:       }
// CHECK-NEXT:       affine.store %0, %out0[0, %i * 2] : memref<1x32xf32>
// CHECK-NEXT:       affine.store %1, %out0[0, %i * 2 + 1] : memref<1x32xf32>
// CHECK-NEXT:     }
// CHECK-NEXT:     func.return
