// RUN: not xdsl-opt %s -p poet-plan-memory 2>&1 | filecheck %s
// RUN: not xdsl-opt %s -p 'poet-plan-memory{align=0}' 2>&1 | filecheck %s --check-prefix=ALIGN

// CHECK: graph @main: the smallest arena found takes 4 B more than the 60 B of RAM; at most 64 B are alive at once
// ALIGN: align must be a power of two and at least 4, not 0

poet.graph @main(%x: tensor<8xf32>) -> (tensor<8xf32>) attributes {ram = 60 : i64} {
  %y = poet.compute "negate" (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    %r = stablehlo.negate %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.free %x : tensor<8xf32>
  poet.return %y : tensor<8xf32>
}
