// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=1000 block=64},poet-plan-memory,poet-verify' | filecheck %s

// A partial sum has 32 terms, whose rows of the weight take 2 KB: it is interrupted, too, and waits in a buffer of its own.
// The total waits in the place of the result.

poet.graph @main(%x: tensor<2x64xf32> {poet.role = "param"}, %w: tensor<64x16xf32> {poet.role = "param"}) -> tensor<2x16xf32> {
  %0 = poet.compute "dot" (%a = %x : tensor<2x64xf32>, %b = %w : tensor<64x16xf32>) -> tensor<2x16xf32> {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
    poet.yield %1 : tensor<2x16xf32>
  }
  poet.return %0 : tensor<2x16xf32>
}

// CHECK:      affine.for %i = 0 to 2 {
// CHECK-NEXT:   [[PART:%.*]] = poet.tile_buffer {{.*}} : memref<2x16xf32>
// CHECK-NEXT:   affine.for %j = 0 to 32 step 8 {
// CHECK:          poet.slice_in %in1[(%i * 32) + %j, 0]
// CHECK-NEXT:     poet.tile @dot_tile({{.*}}, %out0, [[PART]]) [%i, %j]
// CHECK:      func.func private @dot_tile({{.*}}%out0: memref<2x16xf32>, %sums: memref<2x16xf32>, %rb_start: index, %r_start: index)
// CHECK:        "affine.if"(%r_start) <{condition = affine_set<(d0) : (d0 == 0)>}>
// CHECK:          affine.load %sums
// CHECK:        "affine.if"(%r_start) <{condition = affine_set<(d0) : ((d0 + -24) >= 0)>}>
// CHECK:          "affine.if"(%rb_start) <{condition = affine_set<(d0) : (d0 == 0)>}>
// CHECK:            affine.load %out0
// CHECK:          "affine.if"(%rb_start) <{condition = affine_set<(d0) : ((d0 + -1) >= 0)>}>
// CHECK:          affine.store {{.*}}, %sums
