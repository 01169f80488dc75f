// RUN: xdsl-opt %s -p poet-arrange-kernels | filecheck %s

// What no compute runs, and loops whose iterations run in order, stay as they are.
poet.graph @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %h = poet.compute "sums" (%a = %x : tensor<64x64xf32>) -> tensor<64x64xf32> kernel @sums {
    %0 = stablehlo.negate %a : tensor<64x64xf32>
    poet.yield %0 : tensor<64x64xf32>
  }
  poet.return %h : tensor<64x64xf32>
}
func.func private @sums(%in0: memref<64x64xf32>, %out0: memref<64x64xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 64 {
    affine.for %j = 0 to 64 {
      %0 = affine.load %in0[%i, %j] : memref<64x64xf32>
      affine.store %0, %out0[%i, %j] : memref<64x64xf32>
    }
  } {poet.sequential}
  func.return
}
func.func private @unused(%in0: memref<64x64xf32>, %out0: memref<64x64xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 64 {
    affine.for %j = 0 to 64 {
      %0 = affine.load %in0[%i, %j] : memref<64x64xf32>
      affine.store %0, %out0[%i, %j] : memref<64x64xf32>
    }
  }
  func.return
}

// CHECK:       func.func private @sums(
// CHECK-NEXT:    affine.for %i = 0 to 64 {
// CHECK-NEXT:      affine.for %j = 0 to 64 {
// CHECK:       func.func private @unused(
// CHECK-NEXT:    affine.for %i = 0 to 64 {
// CHECK-NEXT:      affine.for %j = 0 to 64 {
