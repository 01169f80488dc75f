// RUN: xdsl-opt -p stablehlo-to-poet %s | filecheck %s

// The name that a frontend gave an argument; where there is none, that of its new value.

// CHECK:       poet.graph @main(%a: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64, poet.name = "params.a"}, %b: tensor<4xf32> {poet.role = "param", poet.updates = 1 : i64, poet.name = "[1]"}, %x: tensor<4xf32> {poet.role = "input", poet.name = "x"}, %y: tensor<4xf32> {poet.role = "input"}) -> (tensor<4xf32> {poet.name = "[0]"}, tensor<4xf32> {poet.name = "[1]"}) {
func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32, poet.name = "params.a"}, %b: tensor<4xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<4xf32> {poet.name = "x"}, %y: tensor<4xf32>) -> (tensor<4xf32> {jax.result_info = "result[0]"}, tensor<4xf32> {jax.result_info = "result[1]"}) {
  %0 = stablehlo.add %a, %x : tensor<4xf32>
  %1 = stablehlo.add %b, %y : tensor<4xf32>
  func.return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
