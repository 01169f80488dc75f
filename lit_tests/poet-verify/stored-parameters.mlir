// RUN: xdsl-opt %s -p poet-verify --verify-diagnostics --split-input-file | filecheck %s

// Parameters on auxiliary storage.

// CHECK: %p (argument 0) is on storage before the step: its role must be param, not input
poet.graph @g(%p: !poet.page<tensor<4xf32>>) {
  poet.return 
}

// -----

// CHECK: result 0 is %p2 (poet.pageout), a page, but no parameter's new value
poet.graph @g(%x: tensor<4xf32>) -> !poet.page<tensor<4xf32>> {
  %p2 = poet.pageout %x : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: result 0, the new value of parameter %p (argument 0), is not computed in its place: it is %p2 (poet.pageout) in the buffer of %w2 (poet.compute "new")
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64}) -> !poet.page<tensor<4xf32>> {
  %w = poet.pagein %p : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "new" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %w : tensor<4xf32>
  %p2 = poet.pageout %w2 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: poet.pageout writes %w (poet.pagein) as the new value of parameter %p (argument 0), but no compute made it
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64}) -> !poet.page<tensor<4xf32>> {
  %w = poet.pagein %p : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %p2 = poet.pageout %w : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: %w2 (poet.compute "update") is never freed, taken over or returned
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64}) -> !poet.page<tensor<4xf32>> {
  %w = poet.pagein %p : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: parameters on storage are updated but there is no bank_bytes
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: parameters are on storage but the graph has no storage_unit
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: result 0, the new value of parameter %p (argument 0) at offset 64, is at offset 96
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 32 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 96 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: the page %p (argument 0) at offset 96 with 20 bytes ends past the storage of 115
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 115 : i64, bank_bytes = 32 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: %p (argument 0) at offset 32, in bank 0, shares write unit 1 of 32 bytes with a record
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 32 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 128 : i64, bank_bytes = 32 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 32 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: the page %p (argument 0) at offset 80 with 20 bytes overlaps the page %p (argument 0) at offset 64 with 20 bytes, which is still needed
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 16 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: %p (argument 0) at offset 84, in bank 1, shares write unit 2 of 32 bytes with %p (argument 0), in bank 0
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 20 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: %c (argument 1) at offset 84, a constant, shares write unit 2 of 32 bytes with %p (argument 0), in bank 0
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}, %c: !poet.page<tensor<f32>> {poet.role = "param", poet.offset = 84 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 32 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: the page %s (poet.pageout) at offset 112 with 20 bytes overlaps the page %p (argument 0) at offset 96 with 20 bytes, which is still needed
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 32 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %s = poet.pageout %w2 offset 112 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: %s (poet.pageout) at offset 116, a page of the step, shares write unit 3 of 32 bytes with %p (argument 0), in bank 1
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 32 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %s = poet.pageout %w2 offset 116 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}

// -----

// CHECK: storage image: a bank of 36 bytes is not whole write units
poet.graph @g(%p: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 64 : i64}) -> !poet.page<tensor<4xf32>> attributes {arena_bytes = 16 : i64, storage_bytes = 160 : i64, bank_bytes = 36 : i64, storage_unit = 32 : i64} {
  %w = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  %p2 = poet.pageout %w2 offset 64 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w2 : tensor<4xf32>
  poet.return %p2 : !poet.page<tensor<4xf32>>
}
