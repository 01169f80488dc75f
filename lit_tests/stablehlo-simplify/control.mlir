// RUN: xdsl-opt %s -p stablehlo-simplify --split-input-file --verify-diagnostics | filecheck %s

// Loops whose steps constants decide are unrolled: two steps here, since the counter is doubled.

// CHECK-LABEL: func.func public @loop(
// CHECK-NEXT:    %v = stablehlo.slice %x [2:3] : (tensor<5xf32>) -> tensor<1xf32>
// CHECK-NEXT:    %v_1 = stablehlo.slice %x [4:5] : (tensor<5xf32>) -> tensor<1xf32>
// CHECK-NEXT:    %b = stablehlo.multiply %v, %v_1 : tensor<1xf32>
// CHECK-NEXT:    func.return %b : tensor<1xf32>
func.func public @loop(%x: tensor<5xf32>) -> tensor<1xf32> {
  %c = stablehlo.constant dense<2> : tensor<i32>
  %one = stablehlo.constant dense<1.0> : tensor<1xf32>
  %0:2 = stablehlo.while(%i = %c, %a = %one) : tensor<i32>, tensor<1xf32>
  cond {
    %five = stablehlo.constant dense<5> : tensor<i32>
    %p = stablehlo.compare LT, %i, %five, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %next = stablehlo.add %i, %i : tensor<i32>
    %v = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<5xf32>, tensor<i32>) -> tensor<1xf32>
    %b = stablehlo.multiply %a, %v : tensor<1xf32>
    stablehlo.return %next, %b : tensor<i32>, tensor<1xf32>
  }
  return %0#1 : tensor<1xf32>
}

// -----

// A branch on data: both are run. One on a constant is chosen.

// CHECK-LABEL: func.func public @branches(
// CHECK-NEXT:    %e = stablehlo.exponential %x : tensor<3xf32>
// CHECK-NEXT:    %0 = stablehlo.select %p, %e, %x : tensor<i1>, tensor<3xf32>
// CHECK-NEXT:    func.return %0, %x : tensor<3xf32>, tensor<3xf32>
func.func public @branches(%x: tensor<3xf32>, %p: tensor<i1>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = "stablehlo.if"(%p) ({
    %e = stablehlo.exponential %x : tensor<3xf32>
    stablehlo.return %e : tensor<3xf32>
  }, {
    stablehlo.return %x : tensor<3xf32>
  }) : (tensor<i1>) -> tensor<3xf32>
  %c = stablehlo.constant dense<-1> : tensor<i32>
  %1 = "stablehlo.case"(%c) ({
    stablehlo.return %0 : tensor<3xf32>
  }, {
    stablehlo.return %x : tensor<3xf32>
  }) : (tensor<i32>) -> tensor<3xf32>
  return %0, %1 : tensor<3xf32>, tensor<3xf32>
}

// -----

// CHECK: stablehlo.while: whether step 1 is done depends on data, so that the steps cannot be counted; use jax.lax.fori_loop or jax.lax.scan
func.func public @depends_on_data(%x: tensor<f32>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.while(%a = %x) : tensor<f32> cond {
    %p = stablehlo.compare LT, %a, %one, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %b = stablehlo.add %a, %a : tensor<f32>
    stablehlo.return %b : tensor<f32>
  }
  return %0 : tensor<f32>
}
