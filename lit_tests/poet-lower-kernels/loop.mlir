// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s --check-prefix SIMPLE
// RUN: xdsl-opt %s -p stablehlo-simplify,stablehlo-to-poet,poet-fuse,poet-lower-kernels | filecheck %s

// A long loop is one kernel: the counter is a function of the step, what nothing reads is not
// carried, and the stacked rows are written where they are, not cleared before. The new value of the
// parameter is made in its place.

// SIMPLE:      %1, %2 = "resume.repeat"(%h, %zero, %x) <{trips = 900 : i64, carried = 1 : i64, stacks = array<i64: 0, 899, -1>}> ({
// SIMPLE-NEXT: ^bb0(%3: tensor<i32>, %s: tensor<2xf32>, %x_1: tensor<900x2xf32>):
// SIMPLE-NEXT:   %4 = "resume.position"(%3) <{trips = 900 : i64, first = 899 : i64, step = -1 : i64}> : (tensor<i32>) -> tensor<i32>

// CHECK:      kernel @loop_gather_add inplace {{\[\[}}0, 1{{\]\]}} {
// CHECK:      func.func private @loop_gather_add(%in0: memref<900x2xf32>, %in1: memref<2xf32>, %out0: memref<2xf32>, %out1: memref<900x2xf32>) attributes {poet.inputs = 2 : i64, poet.results = 2 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:   affine.for %i = 0 to 2 {
// CHECK-NEXT:     %0 = affine.load %in1[%i] : memref<2xf32>
// CHECK-NEXT:     affine.store %0, %out0[%i] : memref<2xf32>
// CHECK-NEXT:   }
// CHECK-NEXT:   affine.for %t = 0 to 900 {
// CHECK-NEXT:     affine.for %i_1 = 0 to 2 {
// CHECK-NEXT:       %1 = affine.load %out0[%i_1] : memref<2xf32>
// CHECK-NEXT:       %2 = affine.load %in0[%t * -1 + 899, %i_1] : memref<900x2xf32>
// CHECK-NEXT:       %3 = arith.addf %1, %2 : f32
// CHECK-NEXT:       affine.store %3, %out0[%i_1] : memref<2xf32>
// CHECK-NEXT:     }
// CHECK-NEXT:     affine.for %i_2 = 0 to 2 {
// CHECK-NEXT:       %4 = affine.load %out0[%i_2] : memref<2xf32>
// CHECK-NEXT:       affine.store %4, %out1[%t * -1 + 899, %i_2] : memref<900x2xf32>
// CHECK-NEXT:     }
// CHECK-NEXT:   } {poet.sequential}
// CHECK-NEXT:   func.return
func.func public @main(%x: tensor<900x2xf32>, %h: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32>, tensor<900x2xf32>) {
  %c = stablehlo.constant dense<900> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<900x2xf32>
  %0:4 = stablehlo.while(%i = %c, %s = %h, %ys = %zero, %unread = %h) : tensor<i32>, tensor<2xf32>, tensor<900x2xf32>, tensor<2xf32>
  cond {
    %end = stablehlo.constant dense<0> : tensor<i32>
    %p = stablehlo.compare GT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %o = stablehlo.constant dense<0> : tensor<i32>
    %next = stablehlo.subtract %i, %one : tensor<i32>
    %row = stablehlo.dynamic_slice %x, %next, %o, sizes = [1, 2] : (tensor<900x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %v = stablehlo.reshape %row : (tensor<1x2xf32>) -> tensor<2xf32>
    %t = stablehlo.add %s, %v : tensor<2xf32>
    %u = stablehlo.multiply %unread, %t : tensor<2xf32>
    %w = stablehlo.reshape %t : (tensor<2xf32>) -> tensor<1x2xf32>
    %y = stablehlo.dynamic_update_slice %ys, %w, %next, %o : (tensor<900x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<900x2xf32>
    stablehlo.return %next, %t, %y, %u : tensor<i32>, tensor<2xf32>, tensor<900x2xf32>, tensor<2xf32>
  }
  return %0#1, %0#2 : tensor<2xf32>, tensor<900x2xf32>
}
