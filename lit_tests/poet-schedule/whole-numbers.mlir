// RUN: xdsl-opt %s -p 'poet-schedule{time_limit=10 gap=0}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-schedule{time_limit=10.5 gap=0.5}' | filecheck %s

// A whole number is a number of seconds, and a gap.

// CHECK: attributes {schedule = {strategy = "keep-all", status = "optimal"

poet.graph @main(%x: tensor<8xf32>) -> (tensor<8xf32>) {
  %h = poet.compute "tanh" (%a = %x : tensor<8xf32>) -> tensor<8xf32> inplace [[0, 0]] {
    %r = stablehlo.tanh %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %y = poet.compute "negate" (%a = %h : tensor<8xf32>) -> tensor<8xf32> {
    %r = stablehlo.negate %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.return %y : tensor<8xf32>
}
