// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=260},poet-plan-memory,poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=260},poet-plan-memory,poet-verify' | xdsl-opt -p poet-verify | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=260},poet-plan-memory' --print-op-generic | xdsl-opt | filecheck %s

// The table is larger than the RAM. Which rows are looked up is found first; then a tile reads its own.

poet.graph @main(%t: tensor<40x8xf32> {poet.role = "param"}, %i: tensor<4x1xi32> {poet.role = "input"}) -> tensor<4x8xf32> {
  %0 = poet.compute "gather" (%a = %t : tensor<40x8xf32>, %b = %i : tensor<4x1xi32>) -> tensor<4x8xf32> {
    %1 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<40x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
    poet.yield %1 : tensor<4x8xf32>
  }
  poet.return %0 : tensor<4x8xf32>
}

// CHECK:      } tiles (%in0: !poet.page<tensor<40x8xf32>>, %in1: memref<4x1xi32>, %out0: memref<4x8xf32>) {
// CHECK-NEXT:   [[rows:%.*]] = poet.tile_buffer 0 : memref<4xi32>
// CHECK-NEXT:   poet.tile @gather_tile(%in1, [[rows]]) [] : memref<4x1xi32>, memref<4xi32>
// CHECK-NEXT:   affine.for [[i:%.*]] = 0 to 4 {
// CHECK-NEXT:     [[slice:%.*]] = poet.slice_in %in0[[[i]], 0] rows 0 of [[rows]] buffer 16 : !poet.page<tensor<40x8xf32>>, memref<4xi32> -> memref<1x8xf32>
// CHECK-NEXT:     poet.tile @gather_tile1([[slice]], %out0) [[[i]]] : memref<1x8xf32>, memref<4x8xf32>

// CHECK:      func.func private @gather_tile(%in1: memref<4x1xi32>, %list: memref<4xi32>)
// CHECK:      func.func private @gather_tile1(%in0: memref<1x8xf32>, %out0: memref<4x8xf32>, %i_start: index)
// CHECK-SAME:   poet.starts = {{.}}{{.}}affine_map<(d0) -> (d0, 0)>, 0 : i64], unit]
// CHECK:          [[row:%.*]] = affine.apply affine_map<(d0, d1) -> (((d0 * -1) + d1))> (%i_start, %i)
// CHECK:          memref.load %in0[[[row]], {{.*}}] : memref<1x8xf32>
