// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// Element-wise rules, each next to a case that would change bits and stays.

// CHECK-LABEL: func.func public @multiply_by_one(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @multiply_by_one(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<4xf32>
  %r = stablehlo.multiply %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @multiply_by_zero_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.multiply %x, %c : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @multiply_by_zero_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<4xf32>
  %r = stablehlo.multiply %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @multiply_int_by_zero(%x: tensor<4xi32>) -> tensor<4xi32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i32>) -> tensor<4xi32>
// CHECK-NEXT:    func.return %c : tensor<4xi32>
// CHECK-NEXT:  }
func.func public @multiply_int_by_zero(%x: tensor<4xi32>) -> tensor<4xi32> {
  %c = stablehlo.constant dense<0> : tensor<4xi32>
  %r = stablehlo.multiply %x, %c : tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func public @multiply_by_minus_one(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.negate %x : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @multiply_by_minus_one(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<-1.0> : tensor<4xf32>
  %r = stablehlo.multiply %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @divide_by_one(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @divide_by_one(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<4xf32>
  %r = stablehlo.divide %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @divide_by_power_of_two(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<-1.250000e-01> : tensor<f32>
// CHECK-NEXT:    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.multiply %x, %1 : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @divide_by_power_of_two(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<-8.0> : tensor<4xf32>
  %r = stablehlo.divide %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @divide_by_three_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.divide %x, %c : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @divide_by_three_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<4xf32>
  %r = stablehlo.divide %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @divide_by_tiny_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<1.401300e-45> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.divide %x, %c : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @divide_by_tiny_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.0e-45> : tensor<4xf32>
  %r = stablehlo.divide %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @add_minus_zero(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @add_minus_zero(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<-0.0> : tensor<4xf32>
  %r = stablehlo.add %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @add_plus_zero_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.add %x, %c : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @add_plus_zero_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<4xf32>
  %r = stablehlo.add %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @add_plus_zero_to_a_square(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.multiply %x, %x : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @add_plus_zero_to_a_square(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0 = stablehlo.multiply %x, %x : tensor<4xf32>
  %r = stablehlo.add %0, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @add_int_zero(%x: tensor<4xi32>) -> tensor<4xi32> {
// CHECK-NEXT:    func.return %x : tensor<4xi32>
// CHECK-NEXT:  }
func.func public @add_int_zero(%x: tensor<4xi32>) -> tensor<4xi32> {
  %c = stablehlo.constant dense<0> : tensor<4xi32>
  %r = stablehlo.add %x, %c : tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func public @subtract_plus_zero(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @subtract_plus_zero(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<4xf32>
  %r = stablehlo.subtract %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @subtract_minus_zero_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.subtract %x, %c : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @subtract_minus_zero_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<-0.0> : tensor<4xf32>
  %r = stablehlo.subtract %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @constant_goes_right(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.multiply %x, %c : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @constant_goes_right(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<4xf32>
  %r = stablehlo.multiply %c, %x : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @constant_goes_right_in_compare(%x: tensor<4xf32>) -> tensor<4xi1> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.compare GT, %x, %c, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    func.return %r : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @constant_goes_right_in_compare(%x: tensor<4xf32>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<3.0> : tensor<4xf32>
  %r = stablehlo.compare LT, %c, %x, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @maximum_of_minus_infinity(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @maximum_of_minus_infinity(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0xFF800000> : tensor<4xf32>
  %r = stablehlo.maximum %c, %x : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @minimum_of_infinity(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @minimum_of_infinity(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0x7F800000> : tensor<4xf32>
  %r = stablehlo.minimum %x, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @maximum_of_same(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @maximum_of_same(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.maximum %x, %x : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @and_true(%x: tensor<4xi1>) -> tensor<4xi1> {
// CHECK-NEXT:    func.return %x : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @and_true(%x: tensor<4xi1>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<true> : tensor<4xi1>
  %r = stablehlo.and %x, %c : tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @and_false(%x: tensor<4xi1>) -> tensor<4xi1> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<false> : tensor<i1>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i1>) -> tensor<4xi1>
// CHECK-NEXT:    func.return %c : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @and_false(%x: tensor<4xi1>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<false> : tensor<4xi1>
  %r = stablehlo.and %x, %c : tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @or_false(%x: tensor<4xi1>) -> tensor<4xi1> {
// CHECK-NEXT:    func.return %x : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @or_false(%x: tensor<4xi1>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<false> : tensor<4xi1>
  %r = stablehlo.or %x, %c : tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @or_all_ones(%x: tensor<4xi32>) -> tensor<4xi32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<-1> : tensor<i32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i32>) -> tensor<4xi32>
// CHECK-NEXT:    func.return %c : tensor<4xi32>
// CHECK-NEXT:  }
func.func public @or_all_ones(%x: tensor<4xi32>) -> tensor<4xi32> {
  %c = stablehlo.constant dense<-1> : tensor<4xi32>
  %r = stablehlo.or %x, %c : tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func public @xor_false(%x: tensor<4xi1>) -> tensor<4xi1> {
// CHECK-NEXT:    func.return %x : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @xor_false(%x: tensor<4xi1>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<false> : tensor<4xi1>
  %r = stablehlo.xor %x, %c : tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @xor_same(%x: tensor<4xi1>) -> tensor<4xi1> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<false> : tensor<i1>
// CHECK-NEXT:    %r = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i1>) -> tensor<4xi1>
// CHECK-NEXT:    func.return %r : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @xor_same(%x: tensor<4xi1>) -> tensor<4xi1> {
  %r = stablehlo.xor %x, %x : tensor<4xi1>
  return %r : tensor<4xi1>
}

// Infinity minus itself is NaN.
// CHECK-LABEL: func.func public @subtract_same(
// CHECK-NEXT:    %0 = stablehlo.constant dense<0> : tensor<1xi32>
// CHECK-NEXT:    %1 = stablehlo.subtract %y, %y : tensor<1xf32>
func.func public @subtract_same(%x: tensor<1xi32>, %y: tensor<1xf32>) -> (tensor<1xi32>, tensor<1xf32>) {
  %0 = stablehlo.subtract %x, %x : tensor<1xi32>
  %1 = stablehlo.subtract %y, %y : tensor<1xf32>
  return %0, %1 : tensor<1xi32>, tensor<1xf32>
}

// NaN is not equal to itself.
// CHECK-LABEL: func.func public @compare_same(
// CHECK-NEXT:    %0 = stablehlo.constant dense<true> : tensor<1xi1>
// CHECK-NEXT:    %1 = stablehlo.constant dense<false> : tensor<1xi1>
// CHECK-NEXT:    %2 = stablehlo.compare GE, %y, %y, FLOAT : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
func.func public @compare_same(%x: tensor<1xi32>, %y: tensor<1xf32>) -> (tensor<1xi1>, tensor<1xi1>, tensor<1xi1>) {
  %0 = stablehlo.compare GE, %x, %x, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %1 = stablehlo.compare NE, %x, %x, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %2 = stablehlo.compare GE, %y, %y, FLOAT : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
  return %0, %1, %2 : tensor<1xi1>, tensor<1xi1>, tensor<1xi1>
}

// CHECK-LABEL: func.func public @not_not(%x: tensor<4xi1>) -> tensor<4xi1> {
// CHECK-NEXT:    func.return %x : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @not_not(%x: tensor<4xi1>) -> tensor<4xi1> {
  %0 = stablehlo.not %x : tensor<4xi1>
  %r = stablehlo.not %0 : tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func public @negate_negate(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @negate_negate(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  %r = stablehlo.negate %0 : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @negated_product(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<-3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.multiply %x, %1 : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @negated_product(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<4xf32>
  %0 = stablehlo.multiply %x, %c : tensor<4xf32>
  %r = stablehlo.negate %0 : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @product_of_negated(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<-3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.multiply %x, %1 : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @product_of_negated(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<4xf32>
  %0 = stablehlo.negate %x : tensor<4xf32>
  %r = stablehlo.multiply %0, %c : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @add_of_negated(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.subtract %y, %x : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @add_of_negated(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  %r = stablehlo.add %0, %y : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @subtract_of_negated(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.add %x, %y : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @subtract_of_negated(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %y : tensor<4xf32>
  %r = stablehlo.subtract %x, %0 : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @negated_difference_stays(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.subtract %x, %y : tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.negate %0 : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @negated_difference_stays(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.subtract %x, %y : tensor<4xf32>
  %r = stablehlo.negate %0 : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @select_of_same(%x: tensor<4xf32>, %p: tensor<4xi1>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @select_of_same(%x: tensor<4xf32>, %p: tensor<4xi1>) -> tensor<4xf32> {
  %r = stablehlo.select %p, %x, %x : tensor<4xi1>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @select_by_constant(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %y : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @select_by_constant(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<false> : tensor<i1>
  %r = stablehlo.select %c, %x, %y : tensor<i1>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @select_by_not(%x: tensor<4xf32>, %y: tensor<4xf32>, %p: tensor<4xi1>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.select %p, %y, %x : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @select_by_not(%x: tensor<4xf32>, %y: tensor<4xf32>, %p: tensor<4xi1>) -> tensor<4xf32> {
  %0 = stablehlo.not %p : tensor<4xi1>
  %r = stablehlo.select %0, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @convert_to_same(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    func.return %x : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @convert_to_same(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.convert %x : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @convert_of_bool(%x: tensor<4xi1>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.convert %x : (tensor<4xi1>) -> tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @convert_of_bool(%x: tensor<4xi1>) -> tensor<4xf32> {
  %0 = stablehlo.convert %x : (tensor<4xi1>) -> tensor<4xi32>
  %r = stablehlo.convert %0 : (tensor<4xi32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @compare_of_rectified(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>) {
// CHECK-NEXT:    %0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.maximum %x, %c : tensor<4xf32>
// CHECK-NEXT:    %s = stablehlo.compare GT, %r, %c, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    func.return %r, %s : tensor<4xf32>, tensor<4xi1>
// CHECK-NEXT:  }
func.func public @compare_of_rectified(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>) {
  %c = stablehlo.constant dense<0.0> : tensor<4xf32>
  %r = stablehlo.maximum %x, %c : tensor<4xf32>
  %s = stablehlo.compare GT, %x, %c, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %r, %s : tensor<4xf32>, tensor<4xi1>
}

// CHECK-LABEL: func.func public @compare_without_rectified_stays(%x: tensor<4xf32>) -> tensor<4xi1> {
// CHECK-NEXT:    %0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %c = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %r = stablehlo.compare GT, %x, %c, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    func.return %r : tensor<4xi1>
// CHECK-NEXT:  }
func.func public @compare_without_rectified_stays(%x: tensor<4xf32>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<0.0> : tensor<4xf32>
  %r = stablehlo.compare GT, %x, %c, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %r : tensor<4xi1>
}
