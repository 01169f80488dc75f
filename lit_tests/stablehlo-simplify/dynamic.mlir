// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// Windows at computed places, which are moved inside.

// CHECK-LABEL: func.func public @slice_at_a_known_place_too_far_right(
// CHECK-NEXT:    %r = stablehlo.slice %x [3:5, 0:3] : (tensor<5x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:    func.return %r : tensor<2x3xf32>
func.func public @slice_at_a_known_place_too_far_right(%x: tensor<5x3xf32>, %i: tensor<i32>) -> tensor<2x3xf32> {
  %c = stablehlo.constant dense<9> : tensor<i32>
  %r = stablehlo.dynamic_slice %x, %c, %i, sizes = [2, 3] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @slice_at_a_place_known_in_one_dimension(
// CHECK-NEXT:    %0 = stablehlo.slice %x [1:3, 0:3] : (tensor<5x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:    %1 = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
// CHECK-NEXT:    %r = "stablehlo.gather"(%0, %1)
// CHECK-NEXT:    func.return %r : tensor<2x2xf32>
func.func public @slice_at_a_place_known_in_one_dimension(%x: tensor<5x3xf32>, %i: tensor<i32>) -> tensor<2x2xf32> {
  %c = stablehlo.constant dense<1> : tensor<i32>
  %r = stablehlo.dynamic_slice %x, %c, %i, sizes = [2, 2] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
  return %r : tensor<2x2xf32>
}

// A loop that fills a tensor makes one concatenation.

// CHECK-LABEL: func.func public @updates_one_after_the_other(
// CHECK-NEXT:    %0 = stablehlo.slice %x [0:1] : (tensor<4xf32>) -> tensor<1xf32>
// CHECK-NEXT:    %1 = stablehlo.slice %v [0:1] : (tensor<2xf32>) -> tensor<1xf32>
// CHECK-NEXT:    %r = stablehlo.concatenate %0, %1, %v, dim = 0 : (tensor<1xf32>, tensor<1xf32>, tensor<2xf32>) -> tensor<4xf32>
// CHECK-NEXT:    func.return %v, %r : tensor<2xf32>, tensor<4xf32>
func.func public @updates_one_after_the_other(%x: tensor<4xf32>, %v: tensor<2xf32>) -> (tensor<2xf32>, tensor<4xf32>) {
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %x, %v, %c1 : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
  %s = stablehlo.dynamic_slice %0, %c1, sizes = [2] : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>
  %r = stablehlo.dynamic_update_slice %0, %v, %c2 : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
  return %s, %r : tensor<2xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func public @update_of_one_row(
// CHECK-NOT:     dynamic_update_slice
// CHECK-NOT:     gather
// CHECK:         %r = stablehlo.select {{.*}}, %x : tensor<5x3xi1>, tensor<5x3xf32>
// CHECK-NEXT:    func.return %r : tensor<5x3xf32>
func.func public @update_of_one_row(%x: tensor<5x3xf32>, %v: tensor<1x3xf32>, %i: tensor<i32>) -> tensor<5x3xf32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %r = stablehlo.dynamic_update_slice %x, %v, %i, %c : (tensor<5x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}
