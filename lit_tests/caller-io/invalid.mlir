// RUN: xdsl-opt %s -p poet-verify --verify-diagnostics --split-input-file | filecheck %s

// CHECK: %x (argument 0), which is the caller's, is freed
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {io = "caller"} {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %x : tensor<4xf32>
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %x (argument 0), which is the caller's, is taken over by %h (poet.compute "h")
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {io = "caller"} {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  %y = poet.compute "g" (%a = %h : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: %y (poet.compute "g"), which is the caller's, is not in its buffer
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {io = "caller"} {
  %h = poet.compute "h" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  %y = poet.compute "g" (%a = %h : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: poet.pageout of %x (argument 0), which is the caller's
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {io = "caller"} {
  %p = poet.pageout %x : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: result 0 is made by no compute, so nothing writes it into the buffer of the caller
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {io = "caller"} {
  poet.return %x : tensor<4xf32>
}

// -----

// CHECK: %x (argument 0), which is the caller's, is in the arena
poet.graph @g(%x: tensor<4xf32> {poet.offset = 0 : i64}) -> tensor<4xf32>
    attributes {io = "caller", arena_bytes = 16 : i64} {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [-1] {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}

// -----

// CHECK: io must be "arena" or "caller", got "host"
poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {io = "host"} {
  %y = poet.compute "g" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}
