// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// Row updates, then the step on the table, in place: the updates that hit a row are added in their order.
poet.graph @main(%i: tensor<5x1xi32>, %u: tensor<5x6xf32>, %t: tensor<10x6xf32> {poet.role = "param", poet.updates = 0 : i64}) -> tensor<10x6xf32> {
  %n = poet.compute "update" (%a = %i : tensor<5x1xi32>, %b = %u : tensor<5x6xf32>, %c = %t : tensor<10x6xf32>) -> tensor<10x6xf32> inplace [[0, 2]] {
    %z = stablehlo.constant dense<0.0> : tensor<10x6xf32>
    %r = stablehlo.constant dense<1.0e-2> : tensor<10x6xf32>
    %0 = "stablehlo.scatter"(%z, %a, %b) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %3 = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }) : (tensor<10x6xf32>, tensor<5x1xi32>, tensor<5x6xf32>) -> tensor<10x6xf32>
    %1 = stablehlo.multiply %0, %r : tensor<10x6xf32>
    %2 = stablehlo.subtract %c, %1 : tensor<10x6xf32>
    poet.yield %2 : tensor<10x6xf32>
  }
  poet.return %n : tensor<10x6xf32>
}

// CHECK:       func.func private @update(%in0: memref<5x1xi32>, %in1: memref<5x6xf32>, %in2: memref<10x6xf32>, %out0: memref<10x6xf32>) attributes {poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %c = arith.constant 1.000000e-02 : f32
// CHECK-NEXT:    affine.for %i = 0 to 10 {
// CHECK-NEXT:      affine.for %j = 0 to 6 {
// CHECK-NEXT:        %0 = affine.for %s = 0 to 5 iter_args(%acc = %zero) -> (f32) {
// CHECK-NEXT:          %1 = affine.load %in0[%s, 0] : memref<5x1xi32>
// CHECK-NEXT:          %2 = arith.index_cast %1 : i32 to index
// CHECK-NEXT:          %3 = arith.cmpi eq, %2, %i : index
// CHECK-NEXT:          %4 = affine.load %in1[%s, %j] : memref<5x6xf32>
// CHECK-NEXT:          %5 = arith.addf %acc, %4 : f32
// CHECK-NEXT:          %6 = arith.select %3, %5, %acc : f32
// CHECK-NEXT:          affine.yield %6 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %7 = arith.mulf %0, %c : f32
// CHECK-NEXT:        %8 = affine.load %in2[%i, %j] : memref<10x6xf32>
// CHECK-NEXT:        %9 = arith.subf %8, %7 : f32
// CHECK-NEXT:        affine.store %9, %out0[%i, %j] : memref<10x6xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
