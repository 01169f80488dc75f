// RUN: xdsl-opt %s -p 'poet-arrange-kernels{device=host-avx512}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-arrange-kernels{device=nrf52840}' | filecheck %s --check-prefix WITHOUT

// The weights have 4 MB, the cache of a core 1 MB: they are read once, row after row. Unfinished sums wait in the result.
poet.graph @main(%x: tensor<4x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<4x1024xf32> {
  %h = poet.compute "dot" (%a = %x : tensor<4x1024xf32>, %c = %w : tensor<1024x1024xf32>) -> tensor<4x1024xf32> kernel @dot {
    %0 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0] : (tensor<4x1024xf32>, tensor<1024x1024xf32>) -> tensor<4x1024xf32>
    %1 = stablehlo.tanh %0 : tensor<4x1024xf32>
    poet.yield %1 : tensor<4x1024xf32>
  }
  poet.return %h : tensor<4x1024xf32>
}
func.func private @dot(%in0: memref<4x1024xf32>, %in1: memref<1024x1024xf32>, %out0: memref<4x1024xf32>) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  %neg_zero = arith.constant -0.000000e+00 : f32
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 1024 {
      %0 = affine.for %rb = 0 to 32 iter_args(%acc = %zero) -> (f32) {
        %1 = affine.for %r = 0 to 32 iter_args(%acc_1 = %neg_zero) -> (f32) {
          %2 = affine.load %in0[%i, %rb * 32 + %r] : memref<4x1024xf32>
          %3 = affine.load %in1[%rb * 32 + %r, %j] : memref<1024x1024xf32>
          %4 = arith.mulf %2, %3 : f32
          %5 = arith.addf %acc_1, %4 : f32
          affine.yield %5 : f32
        }
        %6 = arith.addf %acc, %1 : f32
        affine.yield %6 : f32
      }
      %7 = math.tanh %0 : f32
      affine.store %7, %out0[%i, %j] : memref<4x1024xf32>
    }
  }
  func.return
}

// CHECK-LABEL:  func.func private @dot
// CHECK:          affine.store %{{zero.*}}, %out0
// CHECK:          affine.for %[[BLOCK:rb.*]] = 0 to 32 {
// CHECK:              affine.load %out0
// CHECK:              affine.for %{{r.*}} = 0 to {{.*}} iter_args
// CHECK:                affine.load %in1[%[[BLOCK]] * 32 +
// CHECK:              affine.store %{{.*}}, %out0
// CHECK-NOT:          poet.blocks
// CHECK:          {poet.sequential}
// CHECK:          affine.load %out0
// CHECK:          math.tanh

// WITHOUT-LABEL: func.func private @dot
// WITHOUT-NOT:   poet.sequential
