// RUN: xdsl-opt %s -p 'poet-pair{ram=2048}' | filecheck %s

// The update also writes over %m, which a compute between it and the reader of %w reads: they stay apart.

poet.graph @main(%w: tensor<32x24xf32> {poet.role = "param", poet.updates = 1}, %m: tensor<1x24xf32> {poet.role = "param", poet.updates = 2}, %x: tensor<1x32xf32>, %dy: tensor<1x24xf32>) -> (tensor<1x32xf32>, tensor<32x24xf32>, tensor<1x24xf32>, tensor<1x24xf32>) {
  %0 = poet.compute "dot" (%a = %dy : tensor<1x24xf32>, %b = %w : tensor<32x24xf32>) -> tensor<1x32xf32> {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<1x24xf32>, tensor<32x24xf32>) -> tensor<1x32xf32>
    poet.yield %1 : tensor<1x32xf32>
  }
  %2 = poet.compute "between" (%a = %m : tensor<1x24xf32>, %b = %dy : tensor<1x24xf32>) -> tensor<1x24xf32> {
    %3 = stablehlo.multiply %a, %b : tensor<1x24xf32>
    poet.yield %3 : tensor<1x24xf32>
  }
  %4, %5 = poet.compute "update" (%a = %x : tensor<1x32xf32>, %b = %dy : tensor<1x24xf32>, %c = %w : tensor<32x24xf32>, %d = %m : tensor<1x24xf32>) -> (tensor<32x24xf32>, tensor<1x24xf32>) inplace [[0, 2], [1, 3]] {
    %6 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<1x32xf32>, tensor<1x24xf32>) -> tensor<32x24xf32>
    %7 = stablehlo.subtract %c, %6 : tensor<32x24xf32>
    %8 = stablehlo.add %d, %b : tensor<1x24xf32>
    poet.yield %7, %8 : tensor<32x24xf32>, tensor<1x24xf32>
  }
  poet.return %0, %4, %5, %2 : tensor<1x32xf32>, tensor<32x24xf32>, tensor<1x24xf32>, tensor<1x24xf32>
}

// CHECK: poet.compute "dot"
// CHECK: poet.compute "between"
// CHECK: poet.compute "update"
