// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// The contraction reads every element of the parameter that its result updates: it must have run
// before the update overwrites them.

// CHECK:      poet.compute "dot"
// CHECK-NOT:    inplace
// CHECK:      poet.compute "subtract"
// CHECK-SAME:   inplace {{\[\[}}0, {{[0-9]}}]]
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%w: tensor<8x8xf32> {tf.aliasing_output = 0 : i32}) -> tensor<8x8xf32> {
  %0 = stablehlo.dot_general %w, %w, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.subtract %w, %0 : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
