// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// Constants are computed once here; equal elements become one element and a broadcast.

// CHECK-LABEL: func.func public @elementwise(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<-1.500000e+00> : tensor<f32>
// CHECK-NEXT:    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.add %x, %1 : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @elementwise(%x: tensor<4xf32>) -> tensor<4xf32> {
  %two = stablehlo.constant dense<2.0> : tensor<4xf32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %b = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %0 = stablehlo.subtract %two, %b : tensor<4xf32>
  %1 = stablehlo.negate %0 : tensor<4xf32>
  %r = stablehlo.add %x, %1 : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @small_table(%x: tensor<3xi32>) -> tensor<3xi32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<[33, 22, 11]> : tensor<3xi32>
// CHECK-NEXT:    %r = stablehlo.add %x, %0 : tensor<3xi32>
// CHECK-NEXT:    func.return %r : tensor<3xi32>
// CHECK-NEXT:  }
func.func public @small_table(%x: tensor<3xi32>) -> tensor<3xi32> {
  %t = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %u = stablehlo.constant dense<[10, 20, 30]> : tensor<3xi32>
  %0 = stablehlo.add %t, %u : tensor<3xi32>
  %1 = stablehlo.reverse %0, dims = [0] : tensor<3xi32>
  %r = stablehlo.add %x, %1 : tensor<3xi32>
  return %r : tensor<3xi32>
}

// CHECK-LABEL: func.func public @not_to_nan() -> tensor<f32> {
// CHECK-NEXT:    %z = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %r = stablehlo.divide %z, %z : tensor<f32>
// CHECK-NEXT:    func.return %r : tensor<f32>
// CHECK-NEXT:  }
func.func public @not_to_nan() -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.divide %z, %z : tensor<f32>
  return %r : tensor<f32>
}

// CHECK-LABEL: func.func public @no_large_tables() -> tensor<1000xi32> {
// CHECK-NEXT:    %i = stablehlo.iota dim = 0 : tensor<1000xi32>
// CHECK-NEXT:    %0 = stablehlo.constant dense<1> : tensor<i32>
// CHECK-NEXT:    %one = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i32>) -> tensor<1000xi32>
// CHECK-NEXT:    %r = stablehlo.add %i, %one : tensor<1000xi32>
// CHECK-NEXT:    func.return %r : tensor<1000xi32>
// CHECK-NEXT:  }
func.func public @no_large_tables() -> tensor<1000xi32> {
  %i = stablehlo.iota dim = 0 : tensor<1000xi32>
  %one = stablehlo.constant dense<1> : tensor<1000xi32>
  %r = stablehlo.add %i, %one : tensor<1000xi32>
  return %r : tensor<1000xi32>
}

// CHECK-LABEL: func.func public @iota_is_never_negative(%t: tensor<1000xi32>) -> tensor<1000xi32> {
// CHECK-NEXT:    %i = stablehlo.iota dim = 0 : tensor<1000xi32>
// CHECK-NEXT:    %r = stablehlo.add %i, %t : tensor<1000xi32>
// CHECK-NEXT:    func.return %r : tensor<1000xi32>
// CHECK-NEXT:  }
func.func public @iota_is_never_negative(%t: tensor<1000xi32>) -> tensor<1000xi32> {
  %i = stablehlo.iota dim = 0 : tensor<1000xi32>
  %zero = stablehlo.constant dense<0> : tensor<1000xi32>
  %n = stablehlo.constant dense<1000> : tensor<1000xi32>
  %p = stablehlo.compare LT, %i, %zero, SIGNED : (tensor<1000xi32>, tensor<1000xi32>) -> tensor<1000xi1>
  %wrapped = stablehlo.add %i, %n : tensor<1000xi32>
  %s = stablehlo.select %p, %wrapped, %i : tensor<1000xi1>, tensor<1000xi32>
  %r = stablehlo.add %s, %t : tensor<1000xi32>
  return %r : tensor<1000xi32>
}

// CHECK-LABEL: func.func public @reduce_of_equal() -> tensor<4xi1> {
// CHECK-NEXT:    %init = stablehlo.constant dense<true> : tensor<i1>
// CHECK-NEXT:    %r = stablehlo.broadcast_in_dim %init, dims = [] : (tensor<i1>) -> tensor<4xi1>
// CHECK-NEXT:    func.return %r : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @reduce_of_equal() -> tensor<4xi1> {
  %t = stablehlo.constant dense<true> : tensor<4x8xi1>
  %init = stablehlo.constant dense<true> : tensor<i1>
  %r = stablehlo.reduce(%t init: %init) applies stablehlo.and across dimensions = [1] : (tensor<4x8xi1>, tensor<i1>) -> tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @negative_zero_is_not_zero() -> tensor<2xf32> {
// CHECK-NEXT:    %r = stablehlo.constant dense<[-0.000000e+00, 0.000000e+00]> : tensor<2xf32>
// CHECK-NEXT:    func.return %r : tensor<2xf32>
// CHECK-NEXT:  }
func.func public @negative_zero_is_not_zero() -> tensor<2xf32> {
  %t = stablehlo.constant dense<[0.0, -0.0]> : tensor<2xf32>
  %r = stablehlo.negate %t : tensor<2xf32>
  return %r : tensor<2xf32>
}
