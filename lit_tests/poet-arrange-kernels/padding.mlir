// RUN: xdsl-opt %s -p poet-arrange-kernels | filecheck %s

// A sum over three neighbours, of which there are two at both ends: these have a loop of their own, two positions 5 apart,
// with the guard; between them there is none.
poet.graph @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %h = poet.compute "sums" (%a = %x : tensor<6xf32>) -> tensor<6xf32> kernel @sums {
    %0 = stablehlo.negate %a : tensor<6xf32>
    poet.yield %0 : tensor<6xf32>
  }
  poet.return %h : tensor<6xf32>
}
func.func private @sums(%in0: memref<6xf32>, %out0: memref<6xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  affine.for %i = 0 to 6 {
    %0 = affine.for %k = 0 to 3 iter_args(%acc = %zero) -> (f32) {
      %1 = "affine.if"(%i, %k) <{condition = affine_set<(d0, d1) : (d0 + d1 - 1 >= 0, -d0 - d1 + 6 >= 0)>}> ({
        %2 = affine.load %in0[%i + %k - 1] : memref<6xf32>
        %3 = arith.addf %acc, %2 : f32
        affine.yield %3 : f32
      }, {
        affine.yield %acc : f32
      }) : (index, index) -> f32
      affine.yield %1 : f32
    }
    affine.store %0, %out0[%i] : memref<6xf32>
  }
  func.return
}

// CHECK:        func.func private @sums(%in0: memref<6xf32>, %out0: memref<6xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:       %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:       affine.for %i = 0 to 2 {
// CHECK-NEXT:         %0 = affine.for %k = 0 to 3 iter_args(%acc = %zero) -> (f32) {
// CHECK-NEXT:           %1 = "affine.if"(%i, %k) <{condition = affine_set<(d0, d1) : ((((d0 * 5) + d1) + -1) >= 0, (((d0 * -5) + (d1 * -1)) + 6) >= 0)>}> ({
// CHECK-NEXT:             %2 = affine.load %in0[%i * 5 + %k + -1] : memref<6xf32>
// CHECK-NEXT:             %3 = arith.addf %acc, %2 : f32
// CHECK-NEXT:             affine.yield %3 : f32
// CHECK-NEXT:           }, {
// CHECK-NEXT:             affine.yield %acc : f32
// CHECK-NEXT:           }) : (index, index) -> f32
// CHECK-NEXT:           affine.yield %1 : f32
// CHECK-NEXT:         }
// CHECK-NEXT:         affine.store %0, %out0[%i * 5] : memref<6xf32>
// CHECK-NEXT:       }
// CHECK-NEXT:       affine.for %i_1 = 0 to 1 {
// CHECK-NEXT:         %4, %5, %6, %7 = affine.for %k_1 = 0 to 1 iter_args(%acc_1 = %zero, %acc_2 = %zero, %acc_3 = %zero, %acc_4 = %zero) -> (f32, f32, f32, f32) {
// CHECK-NEXT:           %8 = affine.load %in0[%i_1 * 4 + 1 + %k_1 * 3 + -1] : memref<6xf32>
// CHECK-NEXT:           %9 = affine.load %in0[%i_1 * 4 + 2 + %k_1 * 3 + -1] : memref<6xf32>
// CHECK-NEXT:           %10 = affine.load %in0[%i_1 * 4 + 3 + %k_1 * 3 + -1] : memref<6xf32>
// CHECK-NEXT:           %11 = affine.load %in0[%i_1 * 4 + 4 + %k_1 * 3 + -1] : memref<6xf32>
// CHECK-NEXT:           %12 = arith.addf %acc_1, %8 : f32
// CHECK-NEXT:           %13 = arith.addf %acc_2, %9 : f32
// CHECK-NEXT:           %14 = arith.addf %acc_3, %10 : f32
// CHECK-NEXT:           %15 = arith.addf %acc_4, %11 : f32
// CHECK:              affine.store %4, %out0[%i_1 * 4 + 1] : memref<6xf32>
// CHECK-NEXT:         affine.store %5, %out0[%i_1 * 4 + 2] : memref<6xf32>
// CHECK-NEXT:         affine.store %6, %out0[%i_1 * 4 + 3] : memref<6xf32>
// CHECK-NEXT:         affine.store %7, %out0[%i_1 * 4 + 4] : memref<6xf32>
// CHECK-NEXT:       }
// CHECK-NEXT:       func.return
