// RUN: xdsl-opt %s -p poet-schedule | filecheck %s

// Without a budget: program order, everything freed at its last use. %x is taken over by %h.

// CHECK:      poet.graph @main(
// CHECK-SAME:   attributes {schedule = {strategy = "keep-all", status = "optimal"
// CHECK-SAME:   peak_bytes = 64 : i64
// CHECK-NEXT:   %h = poet.compute "tanh" (%a = %x : tensor<8xf32>) -> tensor<8xf32> inplace {{\[\[}}0, 0]] {
// CHECK:        %y = poet.compute "negate" (%a = %h : tensor<8xf32>) -> tensor<8xf32> {
// CHECK:        poet.free %h : tensor<8xf32>
// CHECK-NEXT:   poet.return %y : tensor<8xf32>

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
