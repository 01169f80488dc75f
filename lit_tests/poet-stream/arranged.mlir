// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-arrange-kernels{device=nrf52840 keeps=true},poet-annotate{device=nrf52840},poet-stream{ram=1500},poet-plan-memory,poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=1500},poet-plan-memory,poet-verify' | filecheck %s --check-prefix=LOWERED

// A tile has several columns and all terms at a time, like the kernel itself; what tiles are made of is gone.

poet.graph @main(%x: tensor<4x17xf32> {poet.role = "input"}, %w: tensor<17x64xf32> {poet.role = "param"}) -> tensor<4x64xf32> {
  %0 = poet.compute "dot" (%a = %x : tensor<4x17xf32>, %b = %w : tensor<17x64xf32>) -> tensor<4x64xf32> {
    %1 = "stablehlo.dot_general"(%a, %b) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4x17xf32>, tensor<17x64xf32>) -> tensor<4x64xf32>
    poet.yield %1 : tensor<4x64xf32>
  }
  poet.return %0 : tensor<4x64xf32>
}

// CHECK:      poet.tile @dot_tile(%in0, %{{.*}}, %{{.*}}) [%i, %j]
// CHECK-NOT:  func.func private @dot_lowered
// CHECK:      func.func private @dot_tile(%in0: memref<4x17xf32>, %in1: memref<2x64xf32>, %out0: memref<2x64xf32>, %i_start: index, %r_start: index)
// The last tile of the sum is smaller: it runs as it is lowered.
// CHECK-NEXT:   "affine.if"(%r_start) <{condition = affine_set<(d0) : (((d0 * -1) + 15) >= 0)>}> ({
// CHECK:          affine.for %i = 0 to 1 {
// CHECK-NEXT:       affine.for %j = 0 to 8 {
// CHECK:              affine.for %r = 0 to 1 iter_args(
// CHECK-NEXT:           affine.load %in0[%i_start + %i * 2, %r_start + %r * 2] : memref<4x17xf32>
// CHECK:          }, {
// CHECK:          affine.for %{{.*}} = affine_map<(d0) -> (d0)>(%i_start) to affine_map<(d0) -> ((d0 + 2))>(%i_start)
// CHECK:            affine.for %{{.*}} = affine_map<(d0) -> (d0)>(%r_start) to {{.*}}(%r_start)
// CHECK-NOT:  func.func private @dot_lowered

// LOWERED:     func.func private @dot_tile(
// LOWERED-NOT: affine.if"(%r_start) <{condition = affine_set<(d0) : (((d0 * -1) + 15) >= 0)>}> ({
// LOWERED:     affine.for %i = affine_map<(d0) -> (d0)>(%i_start)
