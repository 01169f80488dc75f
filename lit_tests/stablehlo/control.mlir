// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s

// Loops as JAX prints them, and branches. Both are printed in generic form.

// CHECK-LABEL: func.func public @loop
func.func public @loop(%x: tensor<3xf32>) -> tensor<3xf32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  // CHECK:      %{{.*}}, %{{.*}} = "stablehlo.while"(%c, %x) ({
  // CHECK-NEXT: ^bb0(%i: tensor<i32>, %a: tensor<3xf32>):
  // CHECK:        stablehlo.return %{{.*}} : tensor<i1>
  // CHECK-NEXT: }, {
  // CHECK-NEXT: ^bb0(%i_1: tensor<i32>, %a_1: tensor<3xf32>):
  // CHECK:        stablehlo.return %{{.*}}, %{{.*}} : tensor<i32>, tensor<3xf32>
  // CHECK-NEXT: }) : (tensor<i32>, tensor<3xf32>) -> (tensor<i32>, tensor<3xf32>)
  %0:2 = stablehlo.while(%i = %c, %a = %x) : tensor<i32>, tensor<3xf32>
  cond {
    %three = stablehlo.constant dense<3> : tensor<i32>
    %p = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %a : tensor<3xf32>
    stablehlo.return %next, %b : tensor<i32>, tensor<3xf32>
  }
  return %0#1 : tensor<3xf32>
}

// CHECK-LABEL: func.func public @branches
func.func public @branches(%x: tensor<3xf32>, %p: tensor<i1>, %i: tensor<i32>) -> (tensor<3xf32>, tensor<3xf32>) {
  // CHECK-NEXT: %0 = "stablehlo.if"(%p) ({
  // CHECK-NEXT:   %n = stablehlo.negate %x : tensor<3xf32>
  // CHECK-NEXT:   stablehlo.return %n : tensor<3xf32>
  // CHECK-NEXT: }, {
  // CHECK-NEXT:   stablehlo.return %x : tensor<3xf32>
  // CHECK-NEXT: }) : (tensor<i1>) -> tensor<3xf32>
  %0 = "stablehlo.if"(%p) ({
    %n = stablehlo.negate %x : tensor<3xf32>
    stablehlo.return %n : tensor<3xf32>
  }, {
    stablehlo.return %x : tensor<3xf32>
  }) : (tensor<i1>) -> tensor<3xf32>
  // CHECK-NEXT: "stablehlo.case"(%i) ({
  // CHECK:      }) : (tensor<i32>) -> tensor<3xf32>
  %1 = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<3xf32>
  }, {
    stablehlo.return %0 : tensor<3xf32>
  }) : (tensor<i32>) -> tensor<3xf32>
  return %0, %1 : tensor<3xf32>, tensor<3xf32>
}
