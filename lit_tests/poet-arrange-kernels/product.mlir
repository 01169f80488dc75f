// RUN: xdsl-opt %s -p poet-arrange-kernels | filecheck %s

// Four columns at a time: what is loaded of the row serves all of them.
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
// CHECK-NEXT:     affine.for %i = 0 to 8 {
// CHECK-NEXT:       %0, %1, %2, %3 = affine.for %r = 0 to 64 iter_args(%acc = %zero, %acc_1 = %zero, %acc_2 = %zero, %acc_3 = %zero) -> (f32, f32, f32, f32) {
// CHECK-NEXT:         %4 = affine.load %in0[0, %r] : memref<1x64xf32>
// CHECK-NEXT:         %5 = affine.load %in1[%r, %i * 4] : memref<64x32xf32>
// CHECK-NEXT:         %6 = affine.load %in1[%r, %i * 4 + 1] : memref<64x32xf32>
// CHECK-NEXT:         %7 = affine.load %in1[%r, %i * 4 + 2] : memref<64x32xf32>
// CHECK-NEXT:         %8 = affine.load %in1[%r, %i * 4 + 3] : memref<64x32xf32>
// CHECK-NEXT:         %9 = arith.mulf %4, %5 : f32
// CHECK-NEXT:         %10 = arith.mulf %4, %6 : f32
// CHECK-NEXT:         %11 = arith.mulf %4, %7 : f32
// CHECK-NEXT:         %12 = arith.mulf %4, %8 : f32
// CHECK-NEXT:         %13 = arith.addf %acc, %9 : f32
// CHECK-NEXT:         %14 = arith.addf %acc_1, %10 : f32
// CHECK-NEXT:         %15 = arith.addf %acc_2, %11 : f32
// CHECK-NEXT:         %16 = arith.addf %acc_3, %12 : f32
// CHECK-NEXT:         affine.yield %13, %14, %15, %16 : f32, f32, f32, f32
// CHECK-NEXT:       }
// CHECK-NEXT:       affine.store %0, %out0[0, %i * 4] : memref<1x32xf32>
// CHECK-NEXT:       affine.store %1, %out0[0, %i * 4 + 1] : memref<1x32xf32>
// CHECK-NEXT:       affine.store %2, %out0[0, %i * 4 + 2] : memref<1x32xf32>
// CHECK-NEXT:       affine.store %3, %out0[0, %i * 4 + 3] : memref<1x32xf32>
// CHECK-NEXT:     }
// CHECK-NEXT:     func.return
