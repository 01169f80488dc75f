// RUN: xdsl-opt %s -p poet-verify | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt -p poet-verify | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

// A product in tiles, in 160 bytes. A sum is interrupted: it goes on from a buffer, and is stored at
// its last tile.

builtin.module {
  poet.graph @main(%x: tensor<2x6xf32> {poet.role = "input", poet.offset = 0 : i64}, %w: !poet.page<tensor<6x8xf32>> {poet.role = "param", poet.offset = 1024 : i64}) -> tensor<2x8xf32> attributes {schedule = {}, block_bytes = 512 : i64, arena_bytes = 160 : i64, storage_bytes = 1656 : i64, bank_bytes = 0 : i64, storage_unit = 512 : i64, ram = 160 : i64} {
    %0 = poet.pageout %x offset 1536 : tensor<2x6xf32> -> !poet.page<tensor<2x6xf32>>
    %1 = poet.stream "dot" (%a = %0 : !poet.page<tensor<2x6xf32>>, %b = %w : !poet.page<tensor<6x8xf32>>) -> !poet.page<tensor<2x8xf32>> cost #poet.cost<energy_nj = 1486500, time_ns = 4504545, workspace = 112, flops = 0, read_ns = 3000000, write_ns = 1000000> offsets [1588] workspace_offset 48 {
      %2 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x6xf32>, tensor<6x8xf32>) -> tensor<2x8xf32>
      poet.yield %2 : tensor<2x8xf32>
    } tiles (%in0: !poet.page<tensor<2x6xf32>>, %in1: !poet.page<tensor<6x8xf32>>, %out0: !poet.page<tensor<2x8xf32>>) {
      affine.for %i = 0 to 8 step 4 {
        %3 = poet.tile_buffer 48 : memref<2x4xf32>
        %4 = poet.tile_buffer 80 : memref<2x4xf32>
        affine.for %j = 0 to 6 step 2 {
          %5 = poet.slice_in %in0[0, %j] buffer 0 : !poet.page<tensor<2x6xf32>> -> memref<2x2xf32>
          %6 = poet.slice_in %in1[%j, %i] buffer 16 : !poet.page<tensor<6x8xf32>> -> memref<2x4xf32>
          poet.tile @dot_tile(%5, %6, %3, %4) [%i, %j] : memref<2x2xf32>, memref<2x4xf32>, memref<2x4xf32>, memref<2x4xf32>
        }
        poet.slice_out %3, %out0[0, %i] : memref<2x4xf32> -> !poet.page<tensor<2x8xf32>>
      }
    }
    poet.free %x : tensor<2x6xf32>
    %2 = poet.pagein %1 offset 0 : !poet.page<tensor<2x8xf32>> -> tensor<2x8xf32>
    %3 = poet.compute "tanh" (%a = %2 : tensor<2x8xf32>) -> tensor<2x8xf32> kernel @tanh offsets [64] {
      %4 = stablehlo.tanh %a : tensor<2x8xf32>
      poet.yield %4 : tensor<2x8xf32>
    }
    poet.free %2 : tensor<2x8xf32>
    poet.return %3 : tensor<2x8xf32>
  }
  func.func private @tanh(%in0: memref<2x8xf32>, %out0: memref<2x8xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
    affine.for %i = 0 to 2 {
      affine.for %j = 0 to 8 {
        %0 = affine.load %in0[%i, %j] : memref<2x8xf32>
        %1 = math.tanh %0 : f32
        affine.store %1, %out0[%i, %j] : memref<2x8xf32>
      }
    }
    func.return
  }
  func.func private @dot_tile(%in0: memref<2x2xf32>, %in1: memref<2x4xf32>, %out0: memref<2x4xf32>, %sums: memref<2x4xf32>, %j_start: index, %r_start: index) attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 1 : i64, poet.tiles = array<i64: 8, 4, 6, 2>, poet.starts = [affine_map<(d0, d1) -> (0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (0, d0)>, unit]} {
    %zero = arith.constant 0.000000e+00 : f32
    affine.for %i = 0 to 2 {
      affine.for %j = affine_map<(d0) -> (d0)>(%j_start) to affine_map<(d0) -> ((d0 + 4))>(%j_start) {
        %0 = "affine.if"(%r_start) <{condition = affine_set<(d0) : (d0 == 0)>}> ({
          affine.yield %zero : f32
        }, {
          %1 = affine.load %sums[%i, %j_start * -1 + %j] : memref<2x4xf32>
          affine.yield %1 : f32
        }) : (index) -> f32
        %2 = affine.for %r = affine_map<(d0) -> (d0)>(%r_start) to affine_map<(d0) -> ((d0 + 2))>(%r_start) iter_args(%acc = %0) -> (f32) {
          %3 = affine.load %in0[%i, %r_start * -1 + %r] : memref<2x2xf32>
          %4 = affine.load %in1[%r_start * -1 + %r, %j_start * -1 + %j] : memref<2x4xf32>
          %5 = arith.mulf %3, %4 : f32
          %6 = arith.addf %acc, %5 : f32
          affine.yield %6 : f32
        }
        "affine.if"(%r_start) <{condition = affine_set<(d0) : ((d0 + -4) >= 0)>}> ({
          affine.store %2, %out0[%i, %j_start * -1 + %j] : memref<2x4xf32>
          affine.yield
        }, {
          affine.store %2, %sums[%i, %j_start * -1 + %j] : memref<2x4xf32>
          affine.yield
        }) : (index) -> ()
      }
    }
    func.return
  }
}

// CHECK:      poet.graph @main(%x: tensor<2x6xf32> {poet.role = "input", poet.offset = {{[0-9]+}} : i64}, %w: !poet.page<tensor<6x8xf32>>
// CHECK-SAME:   arena_bytes = 160 : i64
// CHECK-NEXT:   [[x:%.*]] = poet.pageout %x offset {{[0-9]+}}
// CHECK-NEXT:   [[y:%.*]] = poet.stream "dot" (%a = [[x]] : !poet.page<tensor<2x6xf32>>, %b = %w : !poet.page<tensor<6x8xf32>>) -> !poet.page<tensor<2x8xf32>> cost #poet.cost<{{.*}} workspace = 112, flops = 0, read_ns = 3000000, write_ns = 1000000> offsets [{{[0-9]+}}] workspace_offset 48 {
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
