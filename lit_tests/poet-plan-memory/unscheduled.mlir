// RUN: not xdsl-opt %s -p poet-plan-memory 2>&1 | filecheck %s

// CHECK: graph @main is not scheduled

poet.graph @main(%x: tensor<8xf32>) -> (tensor<8xf32>) {
  %y = poet.compute "negate" (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    %r = stablehlo.negate %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.return %y : tensor<8xf32>
}
