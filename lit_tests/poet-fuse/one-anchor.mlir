// RUN: xdsl-opt %s -p stablehlo-to-poet,poet-fuse | filecheck %s

// The sum of two contractions: the later one takes the addition, so that a schedule need not hold the
// operands of both at once.

// CHECK:      poet.compute "dot"
// CHECK:      poet.compute "dot_add"
// CHECK-NOT:  poet.compute
// CHECK:      poet.return
func.func public @main(%x: tensor<4x16xf32>, %w: tensor<16x8xf32>, %y: tensor<4x16xf32>,
                       %v: tensor<16x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.dot_general %y, %v, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.add %0, %1 : tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
