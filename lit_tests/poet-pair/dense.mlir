// RUN: xdsl-opt %s -p 'poet-pair{ram=2048}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-pair{ram=8192}' | filecheck %s --check-prefix=APART
// RUN: xdsl-opt %s -p 'poet-pair{ram=600}' | filecheck %s --check-prefix=APART
// RUN: xdsl-opt %s -p 'poet-pair{ram=2048},poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=2048},poet-plan-memory,poet-verify' | filecheck %s --check-prefix=TILES
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-pair{ram=2048}' 2>&1 | filecheck %s --check-prefix=LATE

// The gradient of the input of a dense layer, and the update of its weight, which does not fit into
// the RAM: one compute, and one loop over tiles in which each slice of the weight is read once.

poet.graph @main(%w: tensor<32x24xf32> {poet.role = "param", poet.updates = 1}, %x: tensor<1x32xf32>, %dy: tensor<1x24xf32>) -> (tensor<1x32xf32>, tensor<32x24xf32>) {
  %0 = poet.compute "dot" (%a = %dy : tensor<1x24xf32>, %b = %w : tensor<32x24xf32>) -> tensor<1x32xf32> {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<1x24xf32>, tensor<32x24xf32>) -> tensor<1x32xf32>
    poet.yield %1 : tensor<1x32xf32>
  }
  %2 = poet.compute "update" (%a = %x : tensor<1x32xf32>, %b = %dy : tensor<1x24xf32>, %c = %w : tensor<32x24xf32>) -> tensor<32x24xf32> inplace [[0, 2]] {
    %3 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<1x32xf32>, tensor<1x24xf32>) -> tensor<32x24xf32>
    %4 = stablehlo.subtract %c, %3 : tensor<32x24xf32>
    poet.yield %4 : tensor<32x24xf32>
  }
  poet.return %0, %2 : tensor<1x32xf32>, tensor<32x24xf32>
}

// CHECK:      %{{.*}}, %{{.*}} = poet.compute "dot_update" (%a = %dy : tensor<1x24xf32>, %b = %w : tensor<32x24xf32>, %c = %x : tensor<1x32xf32>) -> (tensor<1x32xf32>, tensor<32x24xf32>) inplace {{.}}[1, 1]] {
// CHECK-NEXT:   [[dx:%.*]] = stablehlo.dot_general %a, %b,
// CHECK-NEXT:   [[dw:%.*]] = stablehlo.dot_general %c, %a,
// CHECK-NEXT:   [[new:%.*]] = stablehlo.subtract %b, [[dw]]
// CHECK-NEXT:   poet.yield [[dx]], [[new]]

// APART: poet.compute "dot"
// APART: poet.compute "update"

// TILES:      affine.for [[i:%.*]] = 0 to 32 step
// TILES:        [[slice:%.*]] = poet.slice_in %in1[[[i]], 0]
// TILES-NOT:    poet.slice_in %in1
// TILES:        poet.tile @{{.*}}[[slice]],
// TILES-NEXT:   poet.tile @{{.*}}[[slice]]
// TILES-NEXT:   poet.slice_out

// LATE: poet-pair runs before poet-lower-kernels
