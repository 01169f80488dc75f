// RUN: xdsl-opt %s -p 'stablehlo-to-poet' --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'stablehlo-to-poet{frozen="off"}' --split-input-file | filecheck %s --check-prefix=OFF

// Returned as it came, and marked by a frontend: neither is ever written.
// CHECK-LABEL: poet.graph @main(%w: tensor<4xf32> {poet.role = "frozen", poet.updates = 0 : i64},
// CHECK-SAME:    %u: tensor<4xf32> {poet.role = "frozen"}, %x: tensor<4xf32> {poet.role = "input"})
// CHECK:         poet.return %w, %{{.*}}
// OFF-LABEL:   poet.graph @main(%w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64},
// OFF-SAME:      %u: tensor<4xf32> {poet.role = "input"}, %x: tensor<4xf32> {poet.role = "input"})
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %u: tensor<4xf32> {poet.frozen}, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.multiply %w, %x : tensor<4xf32>
  %1 = stablehlo.add %0, %u : tensor<4xf32>
  func.return %w, %1 : tensor<4xf32>, tensor<4xf32>
}
