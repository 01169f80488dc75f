// RUN: xdsl-opt %s -p poet-order | filecheck %s

// Both gradients before both updates, as JAX writes them: 160 bytes at once. The update of %v moves to
// its gradient: 128 bytes. That of %w stays behind "gradient_w", which reads the old %w.

// CHECK-LABEL: poet.graph @main
// CHECK:         poet.compute "gradient_v"
// CHECK:         poet.compute "update_v"
// CHECK:         poet.compute "gradient_w"
// CHECK:         poet.compute "update_w"
// CHECK:         poet.return

poet.graph @main(%x: tensor<8xf32>,
                 %w: tensor<8xf32> {poet.role = "param", poet.updates = 0 : i64},
                 %v: tensor<8xf32> {poet.role = "param", poet.updates = 1 : i64})
    -> (tensor<8xf32>, tensor<8xf32>) {
  %gv = poet.compute "gradient_v" (%a = %x : tensor<8xf32>, %b = %w : tensor<8xf32>) -> tensor<8xf32> {
    %r = stablehlo.multiply %a, %b : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %gw = poet.compute "gradient_w" (%a = %x : tensor<8xf32>, %b = %w : tensor<8xf32>) -> tensor<8xf32> {
    %r = stablehlo.add %a, %b : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %w1 = poet.compute "update_w" (%a = %w : tensor<8xf32>, %b = %gw : tensor<8xf32>) -> tensor<8xf32> inplace [[0, 0]] {
    %r = stablehlo.subtract %a, %b : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %v1 = poet.compute "update_v" (%a = %v : tensor<8xf32>, %b = %gv : tensor<8xf32>) -> tensor<8xf32> inplace [[0, 0]] {
    %r = stablehlo.subtract %a, %b : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.return %w1, %v1 : tensor<8xf32>, tensor<8xf32>
}
