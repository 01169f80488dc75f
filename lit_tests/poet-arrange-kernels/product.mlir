// RUN: xdsl-opt %s -p 'poet-arrange-kernels{device=nrf52840}' | filecheck %s
// RUN: xdsl-opt %s -p poet-arrange-kernels | filecheck %s --check-prefix LANES

// Four columns at a time, for which the row is loaded once, and the terms of each sum, one after the other. One
// instruction loads up to eight numbers that follow each other: here those of two terms. With vectors the columns are their lanes.
poet.graph @main(%x: tensor<1x3xf32>, %w: tensor<3x4xf32>) -> tensor<1x4xf32> {
  %h = poet.compute "dot" (%a = %x : tensor<1x3xf32>, %c = %w : tensor<3x4xf32>) -> tensor<1x4xf32> kernel @dot {
    %0 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0] : (tensor<1x3xf32>, tensor<3x4xf32>) -> tensor<1x4xf32>
    poet.yield %0 : tensor<1x4xf32>
  }
  poet.return %h : tensor<1x4xf32>
}
func.func private @dot(%in0: memref<1x3xf32>, %in1: memref<3x4xf32>, %out0: memref<1x4xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  affine.for %i = 0 to 4 {
    %0 = affine.for %r = 0 to 3 iter_args(%acc = %zero) -> (f32) {
      %1 = affine.load %in0[0, %r] : memref<1x3xf32>
      %2 = affine.load %in1[%r, %i] : memref<3x4xf32>
      %3 = arith.mulf %1, %2 : f32
      %4 = arith.addf %acc, %3 : f32
      affine.yield %4 : f32
    }
    affine.store %0, %out0[0, %i] : memref<1x4xf32>
  }
  func.return
}

// CHECK:        func.func private @dot(%in0: memref<1x3xf32>, %in1: memref<3x4xf32>, %out0: memref<1x4xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:     %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:     affine.for %i = 0 to 1 {
// CHECK-NEXT:       %0, %1, %2, %3 = affine.for %r = 0 to 1 iter_args(%acc = %zero, %acc_1 = %zero, %acc_2 = %zero, %acc_3 = %zero) -> (f32, f32, f32, f32) {
// CHECK-NEXT:         %4 = affine.load %in0[0, %r * 3] : memref<1x3xf32>
// CHECK-NEXT:         %5 = affine.load %in0[0, %r * 3 + 1] : memref<1x3xf32>
// CHECK-NEXT:         %6 = affine.load %in0[0, %r * 3 + 2] : memref<1x3xf32>
// CHECK-NEXT:         %7 = affine.load %in1[%r * 3, %i * 4] : memref<3x4xf32>
// CHECK-NEXT:         %8 = affine.load %in1[%r * 3, %i * 4 + 1] : memref<3x4xf32>
// CHECK-NEXT:         %9 = affine.load %in1[%r * 3, %i * 4 + 2] : memref<3x4xf32>
// CHECK-NEXT:         %10 = affine.load %in1[%r * 3, %i * 4 + 3] : memref<3x4xf32>
// CHECK-NEXT:         %11 = affine.load %in1[%r * 3 + 1, %i * 4] : memref<3x4xf32>
// CHECK-NEXT:         %12 = affine.load %in1[%r * 3 + 1, %i * 4 + 1] : memref<3x4xf32>
// CHECK-NEXT:         %13 = affine.load %in1[%r * 3 + 1, %i * 4 + 2] : memref<3x4xf32>
// CHECK-NEXT:         %14 = affine.load %in1[%r * 3 + 1, %i * 4 + 3] : memref<3x4xf32>
// CHECK-NEXT:         %15 = arith.mulf %4, %7 : f32
// CHECK-NEXT:         %16 = arith.mulf %4, %8 : f32
// CHECK-NEXT:         %17 = arith.mulf %4, %9 : f32
// CHECK-NEXT:         %18 = arith.mulf %4, %10 : f32
// CHECK-NEXT:         %19 = arith.addf %acc, %15 : f32
// CHECK-NEXT:         %20 = arith.addf %acc_1, %16 : f32
// CHECK-NEXT:         %21 = arith.addf %acc_2, %17 : f32
// CHECK-NEXT:         %22 = arith.addf %acc_3, %18 : f32
// CHECK-NEXT:         %23 = arith.mulf %5, %11 : f32
// CHECK-NEXT:         %24 = arith.mulf %5, %12 : f32
// CHECK-NEXT:         %25 = arith.mulf %5, %13 : f32
// CHECK-NEXT:         %26 = arith.mulf %5, %14 : f32
// CHECK-NEXT:         %27 = arith.addf %19, %23 : f32
// CHECK-NEXT:         %28 = arith.addf %20, %24 : f32
// CHECK-NEXT:         %29 = arith.addf %21, %25 : f32
// CHECK-NEXT:         %30 = arith.addf %22, %26 : f32
// CHECK-NEXT:         %31 = affine.load %in1[%r * 3 + 2, %i * 4] : memref<3x4xf32>
// CHECK-NEXT:         %32 = affine.load %in1[%r * 3 + 2, %i * 4 + 1] : memref<3x4xf32>
// CHECK-NEXT:         %33 = affine.load %in1[%r * 3 + 2, %i * 4 + 2] : memref<3x4xf32>
// CHECK-NEXT:         %34 = affine.load %in1[%r * 3 + 2, %i * 4 + 3] : memref<3x4xf32>
// CHECK-NEXT:         %35 = arith.mulf %6, %31 : f32
// CHECK-NEXT:         %36 = arith.mulf %6, %32 : f32
// CHECK-NEXT:         %37 = arith.mulf %6, %33 : f32
// CHECK-NEXT:         %38 = arith.mulf %6, %34 : f32
// CHECK-NEXT:         %39 = arith.addf %27, %35 : f32
// CHECK-NEXT:         %40 = arith.addf %28, %36 : f32
// CHECK-NEXT:         %41 = arith.addf %29, %37 : f32
// CHECK-NEXT:         %42 = arith.addf %30, %38 : f32
// CHECK-NEXT:         affine.yield %39, %40, %41, %42 : f32, f32, f32, f32
// CHECK-NEXT:       } {poet.together = array<i64: 3, 8, 4>}
// CHECK-NEXT:       affine.store %0, %out0[0, %i * 4] : memref<1x4xf32>
// CHECK-NEXT:       affine.store %1, %out0[0, %i * 4 + 1] : memref<1x4xf32>
// CHECK-NEXT:       affine.store %2, %out0[0, %i * 4 + 2] : memref<1x4xf32>
// CHECK-NEXT:       affine.store %3, %out0[0, %i * 4 + 3] : memref<1x4xf32>
// CHECK-NEXT:     }
// CHECK-NEXT:     func.return
// CHECK-NEXT:   }

// LANES:        affine.for %i = 0 to 4 {
// LANES:          affine.store %0, %out0[0, %i] : memref<1x4xf32>
// LANES-NEXT:   } {poet.lanes = 4 : i64}
