// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// The same with a transpose: here a copy is needed, as the update reads what it has overwritten.

// CHECK:      poet.compute "transpose"
// CHECK-NOT:    inplace
// CHECK:      poet.compute "subtract"
// CHECK-SAME:   inplace {{\[\[}}0, {{[0-9]}}]]
// CHECK-NOT:    stablehlo.transpose
// CHECK:      poet.return
func.func public @main(%w: tensor<8x8xf32> {tf.aliasing_output = 0 : i32}) -> tensor<8x8xf32> {
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.subtract %w, %0 : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
