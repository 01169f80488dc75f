// RUN: not xdsl-opt %s -p stablehlo-simplify 2>&1 | filecheck %s

// CHECK: recursion among functions is not supported: @even, @odd
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @even(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @even(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @odd(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @odd(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @even(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
