// RUN: xdsl-opt %s -p poet-verify | filecheck %s

// Everything a scheduled graph may do, at exactly its budget and in exactly its arena.
// CHECK-LABEL: poet.graph @main
poet.graph @main(%x: tensor<4xf32> {poet.role = "input", poet.offset = 0 : i64},
                 %w: tensor<4xf32> {poet.role = "param", poet.updates = 1 : i64, poet.offset = 16 : i64},
                 %frozen: tensor<4xf32> {poet.role = "param", poet.offset = 32 : i64})
    -> (tensor<4xf32>, tensor<4xf32>)
    attributes {ram = 80 : i64, arena_bytes = 80 : i64, storage_bytes = 20 : i64} {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>, %b = %frozen : tensor<4xf32>) -> tensor<4xf32>
      cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 16, flops = 1> offsets [48] workspace_offset 64 {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  %page = poet.pageout %h offset 0 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %h : tensor<4xf32>
  %relu = poet.compute "relu" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    %0 = stablehlo.negate %a : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  %h2 = poet.pagein %page offset 48 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %h2 : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [16] {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  poet.free %h2 : tensor<4xf32>
  // The storage of the first page is free again: nothing reads it any more.
  %page2 = poet.pageout %relu offset 0 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %relu : tensor<4xf32>
  %relu2 = poet.pagein %page2 offset 64 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %relu2, %w2 : tensor<4xf32>, tensor<4xf32>
}

// Parameters on auxiliary storage. In units of 16 bytes: two records, a constant and its checksum,
// the banks of a parameter that is updated and of one of 4 bytes, and a page of the step.
// CHECK-LABEL: poet.graph @paged
poet.graph @paged(%c: !poet.page<tensor<4xf32>> {poet.role = "param", poet.offset = 32 : i64},
                  %p: !poet.page<tensor<2xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64},
                  %kept: !poet.page<tensor<2xf32>> {poet.role = "param", poet.updates = 1 : i64, poet.offset = 52 : i64},
                  %q: !poet.page<tensor<f32>> {poet.role = "param", poet.updates = 2 : i64, poet.offset = 80 : i64})
    -> (!poet.page<tensor<2xf32>>, !poet.page<tensor<2xf32>>, !poet.page<tensor<f32>>)
    attributes {arena_bytes = 28 : i64, storage_bytes = 148 : i64, bank_bytes = 32 : i64, storage_unit = 16 : i64} {
  %c0 = poet.pagein %c offset 8 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w = poet.pagein %p offset 0 : !poet.page<tensor<2xf32>> -> tensor<2xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<2xf32>) -> tensor<2xf32> inplace [[0, 0]] offsets [0] {
    %0 = stablehlo.negate %a : tensor<2xf32>
    poet.yield %0 : tensor<2xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<2xf32> -> !poet.page<tensor<2xf32>>
  poet.free %w2 : tensor<2xf32>
  %step = poet.pageout %c0 offset 128 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %c0 : tensor<4xf32>
  %v = poet.pagein %q offset 24 : !poet.page<tensor<f32>> -> tensor<f32>
  %v2 = poet.compute "update" (%a = %v : tensor<f32>) -> tensor<f32> inplace [[0, 0]] offsets [24] {
    %0 = stablehlo.negate %a : tensor<f32>
    poet.yield %0 : tensor<f32>
  }
  %q2 = poet.pageout %v2 offset 80 : tensor<f32> -> !poet.page<tensor<f32>>
  poet.free %v2 : tensor<f32>
  poet.return %p2, %kept, %q2 : !poet.page<tensor<2xf32>>, !poet.page<tensor<2xf32>>, !poet.page<tensor<f32>>
}

// Residence is not explicit before scheduling, so nothing is said of it.
// CHECK-LABEL: poet.graph @unscheduled
poet.graph @unscheduled(%x: tensor<4xf32>) -> tensor<4xf32> attributes {ram = 1 : i64} {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %h : tensor<4xf32>
}
