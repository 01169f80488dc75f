// RUN: xdsl-opt %s -p 'poet-arrange-kernels{device=host-avx512}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-arrange-kernels{device=nrf52840}' | filecheck %s --check-prefix WITHOUT

// The weights have 4 MB, the cache of a core 1 MB: blocks of 256 columns stay in it for all four rows.
poet.graph @main(%x: tensor<4x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<4x1024xf32> {
  %h = poet.compute "dot" (%a = %x : tensor<4x1024xf32>, %c = %w : tensor<1024x1024xf32>) -> tensor<4x1024xf32> kernel @dot {
    %0 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0] : (tensor<4x1024xf32>, tensor<1024x1024xf32>) -> tensor<4x1024xf32>
    poet.yield %0 : tensor<4x1024xf32>
  }
  poet.return %h : tensor<4x1024xf32>
}
func.func private @dot(%in0: memref<4x1024xf32>, %in1: memref<1024x1024xf32>, %out0: memref<4x1024xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 1024 {
      %0 = affine.for %r = 0 to 1024 iter_args(%acc = %zero) -> (f32) {
        %1 = affine.load %in0[%i, %r] : memref<4x1024xf32>
        %2 = affine.load %in1[%r, %j] : memref<1024x1024xf32>
        %3 = arith.mulf %1, %2 : f32
        %4 = arith.addf %acc, %3 : f32
        affine.yield %4 : f32
      }
      affine.store %0, %out0[%i, %j] : memref<4x1024xf32>
    }
  }
  func.return
}

// CHECK-LABEL:  func.func private @dot
// CHECK:          affine.for %[[BLOCK:.*]] = 0 to 4 {
// CHECK-NEXT:       affine.for %[[ROW:.*]] = 0 to
// CHECK:              affine.for %[[COLUMN:.*]] = 0 to
// CHECK-NEXT:           affine.apply affine_map<{{.*}} * 256{{.*}}>
// CHECK:              {poet.lanes = 16 : i64}
// CHECK:          {poet.blocks}

// WITHOUT-LABEL: func.func private @dot
// WITHOUT-NOT:   poet.blocks
