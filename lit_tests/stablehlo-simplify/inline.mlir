// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// Private functions are inlined, callees first, and erased; equal results are computed once.

// CHECK:      builtin.module {
// CHECK-NEXT:   func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT:     %0 = stablehlo.exponential %x : tensor<4xf32>
// CHECK-NEXT:     %1 = stablehlo.tanh %0 : tensor<4xf32>
// CHECK-NEXT:     func.return %1, %0 : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT:   }
// CHECK-NEXT: }
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = call @outer(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %1 = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0#1, %1 : tensor<4xf32>, tensor<4xf32>
}
func.func private @outer(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.tanh %0 : tensor<4xf32>
  %unused = stablehlo.log %1 : tensor<4xf32>
  return %x, %1 : tensor<4xf32>, tensor<4xf32>
}
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.exponential %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
