// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// Operations that only move elements, and reductions that combine nothing.

// CHECK-LABEL: func.func public @reshape_chain(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:    func.return %x : tensor<2x3xf32>
// CHECK-NEXT:  }
func.func public @reshape_chain(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
  %r = stablehlo.reshape %0 : (tensor<6xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @broadcast_that_repeats_nothing(%x: tensor<2x3xf32>) -> tensor<2x1x3xf32> {
// CHECK-NEXT:    %r = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<2x1x3xf32>
// CHECK-NEXT:    func.return %r : tensor<2x1x3xf32>
// CHECK-NEXT:  }
func.func public @broadcast_that_repeats_nothing(%x: tensor<2x3xf32>) -> tensor<2x1x3xf32> {
  %r = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x1x3xf32>
  return %r : tensor<2x1x3xf32>
}

// CHECK-LABEL: func.func public @broadcast_that_transposes_stays(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
// CHECK-NEXT:    %r = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
// CHECK-NEXT:    func.return %r : tensor<3x2xf32>
// CHECK-NEXT:  }
func.func public @broadcast_that_transposes_stays(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %r = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %r : tensor<3x2xf32>
}

// CHECK-LABEL: func.func public @broadcast_of_broadcast(%x: tensor<3xf32>) -> tensor<4x5x3xf32> {
// CHECK-NEXT:    %r = stablehlo.broadcast_in_dim %x, dims = [2] : (tensor<3xf32>) -> tensor<4x5x3xf32>
// CHECK-NEXT:    func.return %r : tensor<4x5x3xf32>
// CHECK-NEXT:  }
func.func public @broadcast_of_broadcast(%x: tensor<3xf32>) -> tensor<4x5x3xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<5x3xf32>
  %r = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<5x3xf32>) -> tensor<4x5x3xf32>
  return %r : tensor<4x5x3xf32>
}

// CHECK-LABEL: func.func public @broadcast_of_new_ones(%x: tensor<3xf32>) -> tensor<4x3xf32> {
// CHECK-NEXT:    %r = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    func.return %r : tensor<4x3xf32>
// CHECK-NEXT:  }
func.func public @broadcast_of_new_ones(%x: tensor<3xf32>) -> tensor<4x3xf32> {
  %0 = stablehlo.reshape %x : (tensor<3xf32>) -> tensor<1x3xf32>
  %r = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}

// CHECK-LABEL: func.func public @transpose_of_ones(%x: tensor<1x3x1x2xf32>) -> tensor<3x1x1x2xf32> {
// CHECK-NEXT:    %r = stablehlo.reshape %x : (tensor<1x3x1x2xf32>) -> tensor<3x1x1x2xf32>
// CHECK-NEXT:    func.return %r : tensor<3x1x1x2xf32>
// CHECK-NEXT:  }
func.func public @transpose_of_ones(%x: tensor<1x3x1x2xf32>) -> tensor<3x1x1x2xf32> {
  %r = stablehlo.transpose %x, dims = [1, 0, 2, 3] : (tensor<1x3x1x2xf32>) -> tensor<3x1x1x2xf32>
  return %r : tensor<3x1x1x2xf32>
}

// CHECK-LABEL: func.func public @transpose_of_transpose(%x: tensor<2x3x4xf32>) -> tensor<4x3x2xf32> {
// CHECK-NEXT:    %r = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>
// CHECK-NEXT:    func.return %r : tensor<4x3x2xf32>
// CHECK-NEXT:  }
func.func public @transpose_of_transpose(%x: tensor<2x3x4xf32>) -> tensor<4x3x2xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 2, 0] : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %r = stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<3x4x2xf32>) -> tensor<4x3x2xf32>
  return %r : tensor<4x3x2xf32>
}

// CHECK-LABEL: func.func public @transpose_of_broadcast(%x: tensor<3xf32>) -> tensor<3x4xf32> {
// CHECK-NEXT:    %r = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
// CHECK-NEXT:    func.return %r : tensor<3x4xf32>
// CHECK-NEXT:  }
func.func public @transpose_of_broadcast(%x: tensor<3xf32>) -> tensor<3x4xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %r = stablehlo.transpose %0, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}

// CHECK-LABEL: func.func public @reverse_of_ones(%x: tensor<1x3xf32>) -> tensor<1x3xf32> {
// CHECK-NEXT:    %r = stablehlo.reverse %x, dims = [1] : tensor<1x3xf32>
// CHECK-NEXT:    func.return %r : tensor<1x3xf32>
// CHECK-NEXT:  }
func.func public @reverse_of_ones(%x: tensor<1x3xf32>) -> tensor<1x3xf32> {
  %r = stablehlo.reverse %x, dims = [0, 1] : tensor<1x3xf32>
  return %r : tensor<1x3xf32>
}

// CHECK-LABEL: func.func public @reverse_of_reverse(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:    %r = stablehlo.reverse %x, dims = [1] : tensor<2x3xf32>
// CHECK-NEXT:    func.return %r : tensor<2x3xf32>
// CHECK-NEXT:  }
func.func public @reverse_of_reverse(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.reverse %x, dims = [0, 1] : tensor<2x3xf32>
  %r = stablehlo.reverse %0, dims = [0] : tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @slice_of_all(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:    func.return %x : tensor<2x3xf32>
// CHECK-NEXT:  }
func.func public @slice_of_all(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %r = stablehlo.slice %x [0:2, 0:3] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @slice_of_slice(%x: tensor<20xf32>) -> tensor<3xf32> {
// CHECK-NEXT:    %r = stablehlo.slice %x [4:17:6] : (tensor<20xf32>) -> tensor<3xf32>
// CHECK-NEXT:    func.return %r : tensor<3xf32>
// CHECK-NEXT:  }
func.func public @slice_of_slice(%x: tensor<20xf32>) -> tensor<3xf32> {
  %0 = stablehlo.slice %x [1:20:3] : (tensor<20xf32>) -> tensor<7xf32>
  %r = stablehlo.slice %0 [1:6:2] : (tensor<7xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}

// CHECK-LABEL: func.func public @pad_of_nothing(%x: tensor<2x1xf32>, %p: tensor<f32>) -> tensor<2x1xf32> {
// CHECK-NEXT:    func.return %x : tensor<2x1xf32>
// CHECK-NEXT:  }
func.func public @pad_of_nothing(%x: tensor<2x1xf32>, %p: tensor<f32>) -> tensor<2x1xf32> {
  %r = stablehlo.pad %x, %p, low = [0, 0], high = [0, 0], interior = [0, 3] : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  return %r : tensor<2x1xf32>
}

// CHECK-LABEL: func.func public @pad_that_removes(%x: tensor<5xf32>, %p: tensor<f32>) -> tensor<3xf32> {
// CHECK-NEXT:    %r = stablehlo.slice %x [1:4] : (tensor<5xf32>) -> tensor<3xf32>
// CHECK-NEXT:    func.return %r : tensor<3xf32>
// CHECK-NEXT:  }
func.func public @pad_that_removes(%x: tensor<5xf32>, %p: tensor<f32>) -> tensor<3xf32> {
  %r = stablehlo.pad %x, %p, low = [-1], high = [-1], interior = [0] : (tensor<5xf32>, tensor<f32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}

// CHECK-LABEL: func.func public @concatenate_of_one(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:    func.return %x : tensor<2x3xf32>
// CHECK-NEXT:  }
func.func public @concatenate_of_one(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %r = stablehlo.concatenate %x, dim = 0 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func public @maximum_of_one(%x: tensor<1x3xf32>) -> tensor<3xf32> {
// CHECK-NEXT:    %r = stablehlo.reshape %x : (tensor<1x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:    func.return %r : tensor<3xf32>
// CHECK-NEXT:  }
func.func public @maximum_of_one(%x: tensor<1x3xf32>) -> tensor<3xf32> {
  %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = stablehlo.reduce(%x init: %c) applies stablehlo.maximum across dimensions = [0] : (tensor<1x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}

// CHECK-LABEL: func.func public @sum_of_one_keeps_its_zero(%x: tensor<1x3xf32>) -> tensor<3xf32> {
// CHECK-NEXT:    %c = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %0 = stablehlo.reshape %x : (tensor<1x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<3xf32>
// CHECK-NEXT:    %r = stablehlo.add %0, %1 : tensor<3xf32>
// CHECK-NEXT:    func.return %r : tensor<3xf32>
// CHECK-NEXT:  }
func.func public @sum_of_one_keeps_its_zero(%x: tensor<1x3xf32>) -> tensor<3xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<1x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}

// CHECK-LABEL: func.func public @sum_of_one_sum(%x: tensor<1x3x4xf32>) -> tensor<3xf32> {
// CHECK-NEXT:    %c = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [2] : (tensor<1x3x4xf32>, tensor<f32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %r = stablehlo.reshape %0 : (tensor<1x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:    func.return %r : tensor<3xf32>
// CHECK-NEXT:  }
func.func public @sum_of_one_sum(%x: tensor<1x3x4xf32>) -> tensor<3xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [2] : (tensor<1x3x4xf32>, tensor<f32>) -> tensor<1x3xf32>
  %r = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<1x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}

// CHECK-LABEL: func.func public @window_of_one(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @window_of_one(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %m = stablehlo.maximum %a, %b : tensor<f32>
  stablehlo.return %m : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
