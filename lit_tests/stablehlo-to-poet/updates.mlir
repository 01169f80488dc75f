// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-verify --split-input-file | filecheck %s

// An element-wise update is in place; what else reads the parameter moves before it. The constant is
// cloned into both of its users.
// CHECK:       poet.graph @main(%w: tensor<4xf32> {poet.role = "param", poet.updates = 1 : i64, poet.name = "[1]['w']"}, %x: tensor<4xf32> {poet.role = "input"}) -> (tensor<4xf32> {poet.name = "[0]"}, tensor<4xf32> {poet.name = "[1]['w']"}) {
// CHECK-NEXT:    %g = poet.compute "multiply" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:      %lr = stablehlo.constant dense<5.000000e-01> : tensor<4xf32>
// CHECK-NEXT:      %{{g_1|late_1}} = stablehlo.multiply %a, %lr : tensor<4xf32>
// CHECK-NEXT:      poet.yield %{{.*}} : tensor<4xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    %late = poet.compute "multiply" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:      %lr = stablehlo.constant dense<5.000000e-01> : tensor<4xf32>
// CHECK-NEXT:      %{{g_1|late_1}} = stablehlo.multiply %a, %lr : tensor<4xf32>
// CHECK-NEXT:      poet.yield %{{.*}} : tensor<4xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    %new = poet.compute "subtract" (%a = %w : tensor<4xf32>, %b = %g : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK-NEXT:      %new_1 = stablehlo.subtract %a, %b : tensor<4xf32>
// CHECK-NEXT:      poet.yield %{{.*}} : tensor<4xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    poet.return %late, %new : tensor<4xf32>, tensor<4xf32>
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<4xf32>)
    -> (tensor<4xf32> {jax.result_info = "result[0]"}, tensor<4xf32> {jax.result_info = "result[1]['w']"}) {
  %lr = stablehlo.constant dense<0.5> : tensor<4xf32>
  %g = stablehlo.multiply %x, %lr : tensor<4xf32>
  %new = stablehlo.subtract %w, %g : tensor<4xf32>
  %late = stablehlo.multiply %w, %lr : tensor<4xf32>
  func.return %late, %new : tensor<4xf32>, tensor<4xf32>
}

// -----

// A value that is not made element by element from the parameter is copied over it.
// CHECK-LABEL: poet.graph @main(%w: tensor<2x2xf32>
// CHECK-NEXT:    %t = poet.compute "transpose" (%a = %w : tensor<2x2xf32>) -> tensor<2x2xf32> {
// CHECK:         %t_1 = poet.compute "update" (%a = %w : tensor<2x2xf32>, %b = %t : tensor<2x2xf32>) -> tensor<2x2xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK-NEXT:      poet.yield %b : tensor<2x2xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    poet.return %t_1 : tensor<2x2xf32>
func.func public @main(%w: tensor<2x2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2x2xf32> {
  %t = stablehlo.transpose %w, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %t : tensor<2x2xf32>
}

// -----

// A parameter that does not change needs no compute.
// CHECK-LABEL: poet.graph @main(%w: tensor<4xf32> {poet.role = "frozen", poet.updates = 0 : i64})
// CHECK-NEXT:    poet.return %w : tensor<4xf32>
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
  func.return %w : tensor<4xf32>
}

// -----

// Two parameters that get the same value: one in place, the other by copy.
// CHECK-LABEL: poet.graph @main(%v: tensor<4xf32>
// CHECK-NEXT:    %s = poet.compute "add" (%a = %v : tensor<4xf32>, %b = %w : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         %s_1 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %s : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         poet.return %s, %s_1
func.func public @main(%v: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %w: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  %s = stablehlo.add %v, %w : tensor<4xf32>
  func.return %s, %s : tensor<4xf32>, tensor<4xf32>
}

// -----

// The new value is an output, too: that one is a copy.
// CHECK-LABEL: poet.graph @main(%w: tensor<4xf32>
// CHECK-NEXT:    %s = poet.compute "negate" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         %s_1 = poet.compute "copy" (%a = %s : tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:      poet.yield %a : tensor<4xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    poet.return %s_1, %s
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  %s = stablehlo.negate %w : tensor<4xf32>
  func.return %s, %s : tensor<4xf32>, tensor<4xf32>
}

// -----

// The old value is an output: it is copied before the update.
// CHECK-LABEL: poet.graph @main(%w: tensor<4xf32>
// CHECK-NEXT:    %w_1 = poet.compute "copy" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %s = poet.compute "negate" (%a = %w : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         poet.return %w_1, %s
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  %s = stablehlo.negate %w : tensor<4xf32>
  func.return %w, %s : tensor<4xf32>, tensor<4xf32>
}

// -----

// A swap: the first update reads a copy of what the second one has overwritten by then.
// CHECK-LABEL: poet.graph @main(%v: tensor<4xf32>
// CHECK-NEXT:    %v_1 = poet.compute "copy" (%a = %v : tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %w_1 = poet.compute "update" (%a = %v : tensor<4xf32>, %b = %w : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK-NEXT:      poet.yield %b
// CHECK:         %v_2 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %v_1 : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK-NEXT:      poet.yield %b
// CHECK:         poet.return %w_1, %v_2
func.func public @main(%v: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %w: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  func.return %w, %v : tensor<4xf32>, tensor<4xf32>
}

// -----

// Each update reads the other parameter: only one of them can be in place.
// CHECK-LABEL: poet.graph @main(%v: tensor<4xf32>
// CHECK-NEXT:    %0 = poet.compute "subtract" (%a = %w : tensor<4xf32>, %b = %v : tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %1 = poet.compute "subtract" (%a = %v : tensor<4xf32>, %b = %w : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         %2 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %0 : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         poet.return %1, %2
func.func public @main(%v: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %w: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.subtract %w, %v : tensor<4xf32>
  %1 = stablehlo.subtract %v, %w : tensor<4xf32>
  func.return %1, %0 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A reader of both the old and the new value keeps the update from being in place.
// CHECK-LABEL: poet.graph @main(%w: tensor<4xf32>
// CHECK-NEXT:    %new = poet.compute "negate" (%a = %w : tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %both = poet.compute "add" (%a = %w : tensor<4xf32>, %b = %new : tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %new_1 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %new : tensor<4xf32>) -> tensor<4xf32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK:         poet.return %both, %new_1
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  %new = stablehlo.negate %w : tensor<4xf32>
  %both = stablehlo.add %w, %new : tensor<4xf32>
  func.return %both, %new : tensor<4xf32>, tensor<4xf32>
}

// -----

// Constants and arguments as results.
// CHECK-LABEL: poet.graph @main(%w: tensor<f32>
// CHECK-NEXT:    %zero = poet.compute "update" (%a = %w : tensor<f32>) -> tensor<f32> inplace {{\[\[}}0, 0{{\]\]}} {
// CHECK-NEXT:      %zero_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:      poet.yield %zero_1 : tensor<f32>
// CHECK-NEXT:    }
// CHECK-NEXT:    %zero_1 = poet.compute "constant" () -> tensor<f32> {
// CHECK-NEXT:      %zero_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:      poet.yield %zero_2 : tensor<f32>
// CHECK-NEXT:    }
// CHECK-NEXT:    %x_1 = poet.compute "copy" (%a = %x : tensor<f32>) -> tensor<f32> {
// CHECK-NEXT:      poet.yield %a : tensor<f32>
// CHECK-NEXT:    }
// CHECK-NEXT:    poet.return %zero_1, %zero, %x_1
func.func public @main(%w: tensor<f32> {tf.aliasing_output = 1 : i32}, %x: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  func.return %zero, %zero, %x : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// A value returned twice: every further result is a copy.
// CHECK-LABEL: poet.graph @main(%x: tensor<f32>
// CHECK-NEXT:    %c = poet.compute "negate"
// CHECK:         %c_1 = poet.compute "copy" (%a = %c : tensor<f32>) -> tensor<f32> {
// CHECK-NEXT:      poet.yield %a : tensor<f32>
// CHECK-NEXT:    }
// CHECK-NEXT:    %b = poet.compute "add"
// CHECK:         poet.return %c, %b, %c_1
func.func public @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %c = stablehlo.negate %x : tensor<f32>
  %b = stablehlo.add %c, %x : tensor<f32>
  func.return %c, %b, %c : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// So is a constant, of which each result has its own.
// CHECK-LABEL: poet.graph @main()
// CHECK-NEXT:    %k = poet.compute "constant" () -> tensor<f32> {
// CHECK:         %k_1 = poet.compute "constant" () -> tensor<f32> {
// CHECK:         poet.return %k, %k_1
func.func public @main() -> (tensor<f32>, tensor<f32>) {
  %k = stablehlo.constant dense<1.0> : tensor<f32>
  func.return %k, %k : tensor<f32>, tensor<f32>
}
