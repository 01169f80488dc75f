// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// Momentum: both states are updated from the gradient in one kernel with two results.

// CHECK:      poet.compute "multiply_add_subtract"
// CHECK-SAME:   -> (tensor<8xf32>, tensor<8xf32>) inplace {{\[\[}}0, {{[0-9]}}], [1, {{[0-9]}}]]
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%w: tensor<8xf32> {tf.aliasing_output = 0 : i32},
                       %m: tensor<8xf32> {tf.aliasing_output = 1 : i32}, %g: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.multiply %m, %m : tensor<8xf32>
  %1 = stablehlo.add %0, %g : tensor<8xf32>
  %2 = stablehlo.multiply %1, %g : tensor<8xf32>
  %3 = stablehlo.subtract %w, %2 : tensor<8xf32>
  return %3, %1 : tensor<8xf32>, tensor<8xf32>
}
