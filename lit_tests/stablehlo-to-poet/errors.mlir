// RUN: xdsl-opt %s -p stablehlo-to-poet --verify-diagnostics --split-input-file --allow-unregistered-dialect | filecheck %s

// CHECK: no public function @main
func.func private @main() {
  func.return
}

// -----

// CHECK: a step alone is taken here, and there are 2 public functions: @main, @eval
func.func public @main() {
  func.return
}
func.func @eval() {
  func.return
}

// -----

// CHECK: no public function @main, only @step
func.func public @step() {
  func.return
}

// -----

// CHECK: call of @relu is not inlined (stablehlo-simplify does it)
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @relu(%x) : (tensor<f32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}
func.func private @relu(%x: tensor<f32>) -> tensor<f32> {
  func.return %x : tensor<f32>
}

// -----

// CHECK:      4 faults:
// CHECK-NEXT:   argument 0: tensor<?xf32> has a dynamic shape
// CHECK-NEXT:   argument 1: element type f64 is not supported (f32,
// CHECK-NEXT:   argument 2: index is not a tensor of static shape
// CHECK-NEXT:   stablehlo.custom_call is not supported
func.func public @main(%x: tensor<?xf32>, %y: tensor<2xf64>, %z: index) {
  "stablehlo.custom_call"() : () -> ()
  func.return
}

// -----

// CHECK: tf.aliasing_output of argument 0 is 1 : i32, @main has 1 results
func.func public @main(%x: tensor<f32> {tf.aliasing_output = 1 : i32}) -> tensor<f32> {
  func.return %x : tensor<f32>
}

// -----

// CHECK: tf.aliasing_output of argument 0: argument of type tensor<2xf32>, result 0 of type tensor<f32>
func.func public @main(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<f32>) -> tensor<f32> {
  func.return %y : tensor<f32>
}

// -----

// CHECK: tf.aliasing_output of argument 1: result 0 is that of argument 0 already
func.func public @main(%x: tensor<f32> {tf.aliasing_output = 0 : i32}, %y: tensor<f32> {tf.aliasing_output = 0 : i32}) -> tensor<f32> {
  func.return %y : tensor<f32>
}
