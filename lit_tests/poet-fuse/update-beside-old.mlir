// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse,poet-lower-kernels | filecheck %s

// The sum reads the old parameter and the new one. In one kernel the new one would be stored in
// place before the sum has read the old one, and apart neither can run first: so the new one is
// made beside the old one, and copied over it when the sum is done.

// CHECK:      poet.compute "reduce_subtract_multiply"
// CHECK-NOT:    inplace
// CHECK:      poet.compute "copy"
// CHECK-SAME:   inplace {{\[\[}}0, {{[0-9]}}]]
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%w: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>) {
  %n = stablehlo.subtract %w, %x : tensor<8xf32>
  %d = stablehlo.multiply %n, %w : tensor<8xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  return %n, %s : tensor<8xf32>, tensor<f32>
}
