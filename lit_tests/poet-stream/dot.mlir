// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=96},poet-plan-memory,poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=96},poet-plan-memory,poet-verify' | xdsl-opt -p poet-verify | filecheck %s

// The product takes 304 bytes in RAM, so it runs in tiles; its whole kernel is gone. Its sums wait in the place of the result.

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

// CHECK:      poet.graph @main({{.*}}%w: !poet.page<tensor<6x8xf32>>
// CHECK-SAME:   block_bytes = 512 : i64, ram = 96 : i64
// CHECK-SAME:   arena_bytes = 96 : i64
// CHECK:        poet.stream "dot" ({{.*}}%b = %w : !poet.page<tensor<6x8xf32>>) -> tensor<2x8xf32>
// CHECK:        } tiles ({{.*}}%in1: !poet.page<tensor<6x8xf32>>, %out0: memref<2x8xf32>) {
// CHECK-NOT:      poet.tile_buffer
// CHECK:          poet.slice_in %in1[
// CHECK:          poet.tile @dot_tile({{%.*}}, {{%.*}}, %out0) [
// CHECK-NOT:  func.func private @dot(
// CHECK:      func.func private @dot_tile(
