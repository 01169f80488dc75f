// RUN: xdsl-opt %s -p poet-verify --verify-diagnostics --split-input-file | filecheck %s

// CHECK: poet.compute "g" uses %x (argument 0), which was freed by poet.free
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  poet.free %x : tensor<4xf32>
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.free frees %x (argument 0), which was freed by poet.free
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.compute "g" uses %x (argument 0), which was taken over by %h (poet.compute "h")
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %h : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// In-place reuse counts before scheduling, too.
// CHECK: poet.compute "g" uses %w (argument 0), which was taken over by %v (poet.compute "update")
poet.graph @g(%w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64}) -> tensor<4xf32> {
  %v = poet.compute "update" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  %y = poet.compute "g" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %v : tensor<4xf32>
}

// -----

// CHECK: poet.free frees %x (argument 0), which was taken over by %h (poet.compute "h")
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %h : tensor<4xf32>
}

// -----

// CHECK: %h (poet.compute "h") is never freed, taken over or returned
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %x (argument 0) is never freed, taken over or returned
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {schedule = {}} {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %h : tensor<4xf32>
}

// -----

// CHECK: poet.return uses %h (poet.compute "h"), which was freed by poet.free
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %h : tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.return %h : tensor<4xf32>
}

// -----

// CHECK: %h (poet.compute "h") is result 0 and result 1: one buffer for two
poet.graph @g(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %h, %h : tensor<4xf32>, tensor<4xf32>
}

// -----

// CHECK: poet.pagein of %p (poet.pageout), which is not paged out before
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  poet.free %x : tensor<4xf32>
  %y = poet.pagein %p : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %p = poet.pageout %y : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.compute "g" uses %h (poet.compute "h") before it is defined
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %h : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.pageout uses %x (argument 0), which was freed by poet.free
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  poet.free %x : tensor<4xf32>
  %p = poet.pageout %x : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  %y = poet.pagein %p : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: result 0, the new value of parameter %w (argument 0), is not computed in its place: it is %v (poet.compute "new") in the buffer of %v (poet.compute "new")
poet.graph @g(%w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64}) -> tensor<4xf32> {
  %v = poet.compute "new" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %v : tensor<4xf32>
}

// -----

// CHECK: result 0, the new value of parameter %w (argument 0), is not computed in its place: it is %v (poet.compute "new") in the buffer of %x (argument 1)
poet.graph @g(%w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64}, %x: tensor<4xf32>) -> tensor<4xf32> {
  %v = poet.compute "new" (%a = %x : tensor<4xf32>, %b = %w : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %v : tensor<4xf32>
}

// -----

// CHECK: parameter %w (argument 0) must be in RAM at the end of the step but was freed by poet.free
poet.graph @g(%w: tensor<4xf32> {poet.role = "param"}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %w : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.compute "g" needs 52 bytes of RAM, the budget is 51; in RAM: workspace 20, %x (argument 0) 16, %y (poet.compute "g") 16
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {ram = 51 : i64} {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> cost #poet.cost<energy_nj = 0, time_ns = 0, workspace = 20, flops = 0> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.pagein needs 32 bytes of RAM, the budget is 31; in RAM: %x (argument 0) 16, %y (poet.pagein) 16
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {ram = 31 : i64} {
  %p = poet.pageout %x : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  %y = poet.pagein %p : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: the start of poet.graph @g needs 16 bytes of RAM, the budget is 15; in RAM: %x (argument 0) 16
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {schedule = {}, ram = 15 : i64} {
  poet.return %x : tensor<4xf32>
}

// -----

// CHECK: the arena of 32 bytes is over the budget of 31
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> attributes {schedule = {}, ram = 31 : i64, arena_bytes = 32 : i64} {
  poet.return %x : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "g") at offset 12 with 16 bytes overlaps %x (argument 0) at offset 0 with 16 bytes
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [12] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "g") at offset 16 with 16 bytes ends past the arena of 31
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> attributes {arena_bytes = 31 : i64} {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [16] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "g") has no offset though others have one
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "g") at offset 18 is not aligned to its 4 byte elements
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [18] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "g") at offset 16 is in place of %x (argument 0) at offset 0
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> attributes {schedule = {}} {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] offsets [16] {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: the workspace of poet.compute "g" has no offset
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> cost #poet.cost<energy_nj = 0, time_ns = 0, workspace = 8, flops = 0> offsets [16] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: the workspace of poet.compute "g" at offset 8 with 8 bytes overlaps %x (argument 0) at offset 0 with 16 bytes
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> cost #poet.cost<energy_nj = 0, time_ns = 0, workspace = 8, flops = 0> offsets [16] workspace_offset 8 {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: the workspace of poet.compute "g" at offset 28 overlaps %y (poet.compute "g") at 16
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> cost #poet.cost<energy_nj = 0, time_ns = 0, workspace = 8, flops = 0> offsets [16] workspace_offset 28 {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: result 0, the new value of parameter %w (argument 0) at offset 0, is at offset 16
poet.graph @g(%w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 0 : i64}) -> tensor<4xf32> {
  %p = poet.pageout %w offset 0 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w : tensor<4xf32>
  %v = poet.pagein %p offset 16 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %v : tensor<4xf32>
}

// -----

// CHECK: parameter %w (argument 0) ends at offset 16 but began at 0
poet.graph @g(%w: tensor<4xf32> {poet.role = "param", poet.offset = 0 : i64}) {
  %p = poet.pageout %w offset 0 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %w : tensor<4xf32>
  %v = poet.pagein %p offset 16 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return 
}

// -----

// Behind the elements of a page is its CRC.
// CHECK: the page %q (poet.pageout) at offset 16 with 20 bytes overlaps the page %p (poet.pageout) at offset 0 with 20 bytes, which is still needed
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> attributes {storage_bytes = 36 : i64} {
  %p = poet.pageout %x offset 0 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  %q = poet.pageout %x offset 16 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  %y = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: the page %p (poet.pageout) at offset 8 with 20 bytes ends past the storage of 24
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> attributes {storage_bytes = 24 : i64} {
  %p = poet.pageout %x offset 8 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  %y = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: the page %p (poet.pageout) at offset 6 with 20 bytes: offsets in storage are multiples of 4
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> attributes {storage_bytes = 32 : i64} {
  %p = poet.pageout %x offset 6 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  %y = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: there are pages but the graph has no storage_bytes
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %p = poet.pageout %x offset 0 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  %y = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %p (poet.pageout) has no offset in storage though buffers have one
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32> {
  %p = poet.pageout %x : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  %y = poet.pagein %p offset 0 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: kernel @k: poet.inputs must be a number of arguments, got -1 : i2
module {
  poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = poet.compute "y" (%a = %x : tensor<4xf32>) -> tensor<4xf32> kernel @k {
      poet.yield %a : tensor<4xf32>
    }
    poet.return %y : tensor<4xf32>
  }
  func.func private @k(%in0: memref<4xf32>, %out0: memref<4xf32>) attributes {poet.inputs = 3 : i2, poet.results = 1 : i64, poet.workspace = 0 : i64} {
    func.return
  }
}

// -----

// CHECK: kernel @k: poet.inputs + poet.results + poet.workspace is 4, it has 2 arguments in 1 blocks
module {
  poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = poet.compute "y" (%a = %x : tensor<4xf32>) -> tensor<4xf32> kernel @k {
      poet.yield %a : tensor<4xf32>
    }
    poet.return %y : tensor<4xf32>
  }
  func.func private @k(%in0: memref<4xf32>, %out0: memref<4xf32>) attributes {poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
    func.return
  }
}

// -----

// CHECK: kernel @k: its inputs are (memref<3xf32>), a compute that runs it needs (memref<4xf32>)
module {
  poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = poet.compute "y" (%a = %x : tensor<4xf32>) -> tensor<4xf32> kernel @k {
      poet.yield %a : tensor<4xf32>
    }
    poet.return %y : tensor<4xf32>
  }
  func.func private @k(%in0: memref<3xf32>, %out0: memref<4xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
    func.return
  }
}

// -----

// CHECK: poet.compute "y" has 4 bytes of workspace, its kernel takes 8
module {
  poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = poet.compute "y" (%a = %x : tensor<4xf32>) -> tensor<4xf32> kernel @k cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 4, flops = 1> {
      poet.yield %a : tensor<4xf32>
    }
    poet.return %y : tensor<4xf32>
  }
  func.func private @k(%in0: memref<4xf32>, %out0: memref<4xf32>, %ws0: memref<2xf32>) attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 1 : i64} {
    func.return
  }
}

// -----

// CHECK: %x (argument 0) is freed before poet.pageout_start of %x (argument 0) is waited for
poet.graph @g(%x: tensor<4xf32>, %w: !poet.page<tensor<4xf32>> {poet.role = "param"}) -> tensor<4xf32> {
  %y = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  %t = poet.pageout_start %x : tensor<4xf32> -> !poet.transfer<!poet.page<tensor<4xf32>>>
  poet.free %x : tensor<4xf32>
  %p = poet.wait %t : !poet.transfer<!poet.page<tensor<4xf32>>> -> !poet.page<tensor<4xf32>>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %x (argument 0) is taken over by %y (poet.compute "f") before poet.pageout_start of %x (argument 0) is waited for
poet.graph @g(%x: tensor<4xf32>, %w: !poet.page<tensor<4xf32>> {poet.role = "param"}) -> tensor<4xf32> {
  %t = poet.pageout_start %x : tensor<4xf32> -> !poet.transfer<!poet.page<tensor<4xf32>>>
  %y = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  %p = poet.wait %t : !poet.transfer<!poet.page<tensor<4xf32>>> -> !poet.page<tensor<4xf32>>
  poet.return %y : tensor<4xf32>
}

// -----

// One bus: transfers end in the order in which they start.
// CHECK: poet.wait for poet.pagein_start of %w (argument 1) before that for poet.pageout_start of %x (argument 0), which began first
poet.graph @g(%x: tensor<4xf32>, %w: !poet.page<tensor<4xf32>> {poet.role = "param"}) -> tensor<4xf32> {
  %t = poet.pageout_start %x : tensor<4xf32> -> !poet.transfer<!poet.page<tensor<4xf32>>>
  %u = poet.pagein_start %w : !poet.page<tensor<4xf32>> -> !poet.transfer<tensor<4xf32>>
  %v = poet.wait %u : !poet.transfer<tensor<4xf32>> -> tensor<4xf32>
  %p = poet.wait %t : !poet.transfer<!poet.page<tensor<4xf32>>> -> !poet.page<tensor<4xf32>>
  poet.free %v : tensor<4xf32>
  poet.return %x : tensor<4xf32>
}

// -----

// CHECK: poet.pagein before the wait for poet.pageout_start of %x (argument 0), which began first
poet.graph @g(%x: tensor<4xf32>, %w: !poet.page<tensor<4xf32>> {poet.role = "param"}) -> tensor<4xf32> {
  %t = poet.pageout_start %x : tensor<4xf32> -> !poet.transfer<!poet.page<tensor<4xf32>>>
  %v = poet.pagein %w : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %p = poet.wait %t : !poet.transfer<!poet.page<tensor<4xf32>>> -> !poet.page<tensor<4xf32>>
  poet.free %v : tensor<4xf32>
  poet.return %x : tensor<4xf32>
}

// -----

// What is being read already has its place in RAM.
// CHECK: poet.compute "f" needs 48 bytes of RAM, the budget is 47
poet.graph @g(%x: tensor<4xf32>, %w: !poet.page<tensor<4xf32>> {poet.role = "param"}) -> tensor<4xf32> attributes {ram = 47 : i64} {
  %u = poet.pagein_start %w : !poet.page<tensor<4xf32>> -> !poet.transfer<tensor<4xf32>>
  %y = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  %v = poet.wait %u : !poet.transfer<tensor<4xf32>> -> tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.free %v : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "f") at offset 16 with 16 bytes overlaps %v (poet.wait) at offset 16 with 16 bytes
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}, %w: !poet.page<tensor<4xf32>> {poet.role = "param", poet.offset = 1024 : i64}) -> tensor<4xf32> attributes {arena_bytes = 32 : i64, storage_bytes = 1044 : i64, storage_unit = 512 : i64} {
  %u = poet.pagein_start %w offset 16 : !poet.page<tensor<4xf32>> -> !poet.transfer<tensor<4xf32>>
  %y = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [16] {
    poet.yield %a : tensor<4xf32>
  }
  %v = poet.wait %u : !poet.transfer<tensor<4xf32>> -> tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.free %v : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// Cache lines of 32 bytes: %y is written to the line of %v while that is paged in.
// CHECK: %y (poet.compute "f") at offset 48 shares a cache line with %v (poet.wait) at offset 32, which is not waited for
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}, %w: !poet.page<tensor<4xf32>> {poet.role = "param", poet.offset = 1024 : i64}) -> tensor<4xf32> attributes {arena_bytes = 64 : i64, storage_bytes = 1044 : i64, storage_unit = 512 : i64, bank_bytes = 0 : i64, cache_line_bytes = 32 : i64} {
  %u = poet.pagein_start %w offset 32 : !poet.page<tensor<4xf32>> -> !poet.transfer<tensor<4xf32>>
  %y = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [48] {
    poet.yield %a : tensor<4xf32>
  }
  %v = poet.wait %u : !poet.transfer<tensor<4xf32>> -> tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.free %v : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %v (poet.wait) shares a cache line with %x (argument 0) at offset 0
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}, %w: !poet.page<tensor<4xf32>> {poet.role = "param", poet.offset = 1024 : i64}) -> tensor<4xf32> attributes {arena_bytes = 64 : i64, storage_bytes = 1044 : i64, storage_unit = 512 : i64, bank_bytes = 0 : i64, cache_line_bytes = 32 : i64} {
  %u = poet.pagein_start %w offset 16 : !poet.page<tensor<4xf32>> -> !poet.transfer<tensor<4xf32>>
  %v = poet.wait %u : !poet.transfer<tensor<4xf32>> -> tensor<4xf32>
  poet.free %v : tensor<4xf32>
  poet.return %x : tensor<4xf32>
}

// -----

// CHECK: %v (poet.wait) at offset 32 shares the last cache line of the arena, which has 48 bytes
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}, %w: !poet.page<tensor<4xf32>> {poet.role = "param", poet.offset = 1024 : i64}) -> tensor<4xf32> attributes {arena_bytes = 48 : i64, storage_bytes = 1044 : i64, storage_unit = 512 : i64, bank_bytes = 0 : i64, cache_line_bytes = 32 : i64} {
  %u = poet.pagein_start %w offset 32 : !poet.page<tensor<4xf32>> -> !poet.transfer<tensor<4xf32>>
  %v = poet.wait %u : !poet.transfer<tensor<4xf32>> -> tensor<4xf32>
  poet.free %v : tensor<4xf32>
  poet.return %x : tensor<4xf32>
}
