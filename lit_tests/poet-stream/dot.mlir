// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-stream{ram=160},poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-stream{ram=160},poet-verify' | xdsl-opt -p poet-verify | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-stream{ram=160}' --print-op-generic | xdsl-opt | filecheck %s

// The product takes 304 bytes in RAM, so it runs in tiles; the kernel behind it fits. A sum is
// interrupted: it goes on from a buffer, and is stored at its last tile.

poet.graph @main(%x: tensor<2x6xf32> {poet.role = "input"}, %w: tensor<6x8xf32> {poet.role = "param"}) -> tensor<2x8xf32> {
  %0 = poet.compute "dot" (%a = %x : tensor<2x6xf32>, %b = %w : tensor<6x8xf32>) -> tensor<2x8xf32> {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x6xf32>, tensor<6x8xf32>) -> tensor<2x8xf32>
    poet.yield %1 : tensor<2x8xf32>
  }
  %1 = poet.compute "tanh" (%a = %0 : tensor<2x8xf32>) -> tensor<2x8xf32> {
    %2 = stablehlo.tanh %a : tensor<2x8xf32>
    poet.yield %2 : tensor<2x8xf32>
  }
  poet.return %1 : tensor<2x8xf32>
}

// CHECK:      poet.graph @main(%x: tensor<2x6xf32> {poet.role = "input", poet.offset = {{[0-9]+}} : i64}, %w: !poet.page<tensor<6x8xf32>>
// CHECK-SAME:   arena_bytes = 160 : i64
// CHECK-NEXT:   [[x:%.*]] = poet.pageout %x offset {{[0-9]+}}
// CHECK-NEXT:   [[y:%.*]] = poet.stream "dot" (%a = [[x]] : !poet.page<tensor<2x6xf32>>, %b = %w : !poet.page<tensor<6x8xf32>>) -> !poet.page<tensor<2x8xf32>> cost #poet.cost<{{.*}} workspace = 112, {{.*}}> offsets [{{[0-9]+}}] workspace_offset 48 {
// CHECK-NEXT:     stablehlo.dot_general %a, %b
// CHECK-NEXT:     poet.yield
// CHECK-NEXT:   } tiles (%in0: !poet.page<tensor<2x6xf32>>, %in1: !poet.page<tensor<6x8xf32>>, %out0: !poet.page<tensor<2x8xf32>>) {
// CHECK-NEXT:     affine.for [[i:%.*]] = 0 to 8 step 4 {
// CHECK-NEXT:       [[result:%.*]] = poet.tile_buffer 48 : memref<2x4xf32>
// CHECK-NEXT:       [[sums:%.*]] = poet.tile_buffer 80 : memref<2x4xf32>
// CHECK-NEXT:       affine.for [[j:%.*]] = 0 to 6 step 2 {
// CHECK-NEXT:         [[a:%.*]] = poet.slice_in %in0[0, [[j]]] buffer 0 : !poet.page<tensor<2x6xf32>> -> memref<2x2xf32>
// CHECK-NEXT:         [[b:%.*]] = poet.slice_in %in1[[[j]], [[i]]] buffer 16 : !poet.page<tensor<6x8xf32>> -> memref<2x4xf32>
// CHECK-NEXT:         poet.tile @dot_tile([[a]], [[b]], [[result]], [[sums]]) [[[i]], [[j]]] : memref<2x2xf32>, memref<2x4xf32>, memref<2x4xf32>, memref<2x4xf32>
// CHECK-NEXT:       }
// CHECK-NEXT:       poet.slice_out [[result]], %out0[0, [[i]]] : memref<2x4xf32> -> !poet.page<tensor<2x8xf32>>
// CHECK-NEXT:     }
// CHECK-NEXT:   }
// CHECK:        poet.pagein [[y]]
// CHECK-NEXT:   poet.compute "tanh"

// CHECK:      func.func private @tanh
// CHECK:      func.func private @dot_tile(%in0: memref<2x2xf32>, %in1: memref<2x4xf32>, %out0: memref<2x4xf32>, %sums: memref<2x4xf32>, %j_start: index, %r_start: index)
// CHECK-SAME:   poet.tiles = array<i64: 8, 4, 6, 2>, poet.starts = [affine_map<(d0, d1) -> (0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (0, d0)>, unit]
// CHECK:          affine.for %j = affine_map<(d0) -> (d0)>(%j_start) to affine_map<(d0) -> ((d0 + 4))>(%j_start) {
// CHECK-NEXT:       [[first:%.*]] = "affine.if"(%r_start) <{condition = affine_set<(d0) : (d0 == 0)>}> ({
// CHECK-NEXT:         affine.yield %zero : f32
// CHECK:            [[sum:%.*]] = affine.for %r = affine_map<(d0) -> (d0)>(%r_start) to affine_map<(d0) -> ((d0 + 2))>(%r_start) iter_args(%acc = [[first]])
// CHECK:              affine.load %in0[%i, %r_start * -1 + %r]
// CHECK:            "affine.if"(%r_start) <{condition = affine_set<(d0) : ((d0 + -4) >= 0)>}> ({
// CHECK-NEXT:         affine.store [[sum]], %out0[%i, %j_start * -1 + %j]
// CHECK:              affine.store [[sum]], %sums[%i, %j_start * -1 + %j]
