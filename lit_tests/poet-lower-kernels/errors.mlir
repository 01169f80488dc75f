// RUN: not xdsl-opt %s -p poet-lower-kernels 2>&1 | filecheck %s

// CHECK: poet.compute "transpose": inplace [0, 0] is not legal, the kernel reads elements of operand 0 after result 0 would have overwritten them
poet.graph @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = poet.compute "transpose" (%a = %x : tensor<4x4xf32>) -> tensor<4x4xf32> inplace [[0, 0]] {
    %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
    poet.yield %0 : tensor<4x4xf32>
  }
  poet.return %y : tensor<4x4xf32>
}
