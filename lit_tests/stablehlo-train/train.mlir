// RUN: xdsl-opt %s -p 'stablehlo-train{only="b"}' | filecheck %s
// RUN: xdsl-opt %s -p 'stablehlo-train{only="w@1:0:2,b"}' | filecheck %s --check-prefix=PART
// RUN: xdsl-opt %s -p 'stablehlo-train{only="*"}' | filecheck %s --check-prefix=ALL

// The gradient of w is gone, and w is returned as it came.
// CHECK-NOT:  dot_general
// CHECK:      %db = stablehlo.reduce
// CHECK-NEXT: %bn = stablehlo.subtract %b, %db
// CHECK-NEXT: func.return %l, %w, %bn

// Half of the gradient is computed.
// PART:       stablehlo.slice %dy [0:8, 0:2]
// PART-NEXT:  stablehlo.dot_general %x, %{{.*}} -> tensor<3x2xf32>
// PART:       stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 1

// ALL:        %dw = stablehlo.dot_general %x, %dy
func.func public @main(%w: tensor<3x4xf32> {poet.name = "w", tf.aliasing_output = 1 : i32}, %b: tensor<4xf32> {poet.name = "b", tf.aliasing_output = 2 : i32}, %x: tensor<8x3xf32>, %dy: tensor<8x4xf32>) -> (tensor<f32>, tensor<3x4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<f32>
  %t = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %l = stablehlo.add %s, %t : tensor<f32>
  %dw = stablehlo.dot_general %x, %dy, contracting_dims = [0] x [0] : (tensor<8x3xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  %wn = stablehlo.subtract %w, %dw : tensor<3x4xf32>
  %db = stablehlo.reduce(%dy init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
  %bn = stablehlo.subtract %b, %db : tensor<4xf32>
  func.return %l, %wn, %bn : tensor<f32>, tensor<3x4xf32>, tensor<4xf32>
}
