// RUN: xdsl-opt %s -p poet-plan-memory,poet-verify | filecheck %s
// RUN: xdsl-opt %s -p 'poet-plan-memory{align=16},poet-verify' | filecheck %s --check-prefix=ALIGN

// The parameter and its new value are at offset 0 all along. The arena is as big as what is alive
// during "scale": three tensors of 32 bytes and its workspace. The pages are never needed at the same
// time and share their place, which has 4 bytes more than the tensor, for a checksum.

// CHECK:      poet.graph @main(%x: tensor<8xf32> {poet.offset = [[X:[0-9]+]] : i64}, %w: tensor<8xf32> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 0 : i64})
// CHECK-SAME:   arena_bytes = 112 : i64, storage_bytes = 36 : i64
// CHECK:      poet.compute "negate"{{.*}} offsets [{{[0-9]+}}] {
// CHECK:      poet.pageout %h offset 0 :
// CHECK:      poet.compute "scale"{{.*}} workspace = 16{{.*}} offsets [{{[0-9]+}}] workspace_offset {{[0-9]+}} {
// CHECK:      poet.pagein %h_page offset {{[0-9]+}}
// CHECK:      poet.pageout %m offset 0 :
// CHECK:      poet.compute "update"{{.*}} inplace {{\[\[}}0, 0]]{{.*}} offsets [0] {

// ALIGN: arena_bytes = 112 : i64, storage_bytes = 48 : i64

poet.graph @main(%x: tensor<8xf32>, %w: tensor<8xf32> {poet.role = "param", poet.updates = 0 : i64}) -> (tensor<8xf32>) {
  %h = poet.compute "negate" (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    %r = stablehlo.negate %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %h_page = poet.pageout %h : tensor<8xf32> -> !poet.page<tensor<8xf32>>
  poet.free %h : tensor<8xf32>
  %m = poet.compute "scale" (%a = %x : tensor<8xf32>) -> tensor<8xf32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 16, flops = 1> {
    %r = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.free %x : tensor<8xf32>
  %h_1 = poet.pagein %h_page : !poet.page<tensor<8xf32>> -> tensor<8xf32>
  %m_page = poet.pageout %m : tensor<8xf32> -> !poet.page<tensor<8xf32>>
  poet.free %m : tensor<8xf32>
  poet.free %h_1 : tensor<8xf32>
  %m_1 = poet.pagein %m_page : !poet.page<tensor<8xf32>> -> tensor<8xf32>
  %w1 = poet.compute "update" (%a = %w : tensor<8xf32>, %b = %m_1 : tensor<8xf32>) -> tensor<8xf32> inplace [[0, 0]] {
    %r = stablehlo.subtract %a, %b : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.free %m_1 : tensor<8xf32>
  poet.return %w1 : tensor<8xf32>
}
