// RUN: xdsl-opt %s -p poet-lower-kernels,poet-schedule | filecheck %s

// In-place pairs come from the lowered kernels. %y takes the buffer of %h, which dies there; %z may
// not take that of %y, which is a result. %r reads elements of %z after their place was written, so
// it gets a buffer of its own.

// CHECK: %y = poet.compute "negate" {{.*}} inplace {{\[\[}}0, 0]]
// CHECK: %z = poet.compute "abs" (%a = %y : tensor<8xf32>) -> tensor<8xf32> kernel @abs {
// CHECK: %r = poet.compute "reverse" (%a = %z : tensor<8xf32>) -> tensor<8xf32> kernel @reverse {
// CHECK: poet.free %z

poet.graph @main(%x: tensor<8xf32> {poet.role = "param"}) -> (tensor<8xf32>, tensor<8xf32>) {
  %h = poet.compute "tanh" (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.tanh %a : tensor<8xf32>
    poet.yield %0 : tensor<8xf32>
  }
  %y = poet.compute "negate" (%a = %h : tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.negate %a : tensor<8xf32>
    poet.yield %0 : tensor<8xf32>
  }
  %z = poet.compute "abs" (%a = %y : tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.abs %a : tensor<8xf32>
    poet.yield %0 : tensor<8xf32>
  }
  %r = poet.compute "reverse" (%a = %z : tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.reverse %a, dims = [0] : tensor<8xf32>
    poet.yield %0 : tensor<8xf32>
  }
  poet.return %y, %r : tensor<8xf32>, tensor<8xf32>
}
