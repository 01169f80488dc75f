// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=480 block=64},poet-plan-memory,poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=480 block=64},poet-plan-memory,poet-verify' | xdsl-opt -p poet-verify | filecheck %s

// Beside the operands of the product there are 160 bytes. New values are written over the slice of the old ones, so that a
// tile has four rows of 32 bytes, not two.

poet.graph @main(%w: tensor<12x8xf32> {poet.role = "param", poet.updates = 0 : i64}, %x: tensor<4x12xf32> {poet.role = "input"}, %g: tensor<4x8xf32> {poet.role = "input"}) -> tensor<12x8xf32> {
  %0 = poet.compute "dot_subtract" (%a = %x : tensor<4x12xf32>, %b = %g : tensor<4x8xf32>, %c = %w : tensor<12x8xf32>) -> tensor<12x8xf32> inplace [[0, 2]] {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<4x12xf32>, tensor<4x8xf32>) -> tensor<12x8xf32>
    %2 = stablehlo.subtract %c, %1 : tensor<12x8xf32>
    poet.yield %2 : tensor<12x8xf32>
  }
  poet.return %0 : tensor<12x8xf32>
}

// CHECK:      } tiles (%in0: memref<4x12xf32>, %in1: memref<4x8xf32>, %in2: !poet.page<tensor<12x8xf32>>, %out0: !poet.page<tensor<12x8xf32>>) {
// CHECK-NEXT:   affine.for [[i:%.*]] = 0 to 12 step 4 {
// CHECK-NEXT:     [[slice:%.*]] = poet.slice_in %in2[[[i]], 0] buffer 0 : !poet.page<tensor<12x8xf32>> -> memref<4x8xf32>
// CHECK-NEXT:     poet.tile @dot_subtract_tile(%in0, %in1, [[slice]], [[slice]]) [[[i]]] : memref<4x12xf32>, memref<4x8xf32>, memref<4x8xf32>, memref<4x8xf32>
// CHECK-NEXT:     poet.slice_out [[slice]], %out0[[[i]], 0] : memref<4x8xf32> -> !poet.page<tensor<12x8xf32>>
// CHECK-NEXT:   }
