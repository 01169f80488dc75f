// RUN: xdsl-opt %s -p poet-lower-kernels | filecheck %s

// A row is looked up once, its number clamped; counted rows need neither.
poet.graph @main(%t: tensor<10x6xf32>, %i: tensor<5x1xi32>, %p: tensor<8x6xf32>) -> tensor<5x6xf32> {
  %e = poet.compute "embed" (%a = %t : tensor<10x6xf32>, %b = %i : tensor<5x1xi32>, %c = %p : tensor<8x6xf32>) -> tensor<5x6xf32> {
    %0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 6>}> : (tensor<10x6xf32>, tensor<5x1xi32>) -> tensor<5x6xf32>
    %n = stablehlo.iota dim = 0 : tensor<5x1xi32>
    %1 = "stablehlo.gather"(%c, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 6>}> : (tensor<8x6xf32>, tensor<5x1xi32>) -> tensor<5x6xf32>
    %2 = stablehlo.add %0, %1 : tensor<5x6xf32>
    poet.yield %2 : tensor<5x6xf32>
  }
  poet.return %e : tensor<5x6xf32>
}

// CHECK:       func.func private @embed(%in0: memref<10x6xf32>, %in1: memref<5x1xi32>, %in2: memref<8x6xf32>, %out0: memref<5x6xf32>) attributes {poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
// CHECK-NEXT:    %zero = arith.constant 0 : index
// CHECK-NEXT:    %c = arith.constant 9 : index
// CHECK-NEXT:    affine.for %i = 0 to 5 {
// CHECK-NEXT:      %0 = affine.load %in1[%i, 0] : memref<5x1xi32>
// CHECK-NEXT:      %1 = arith.index_cast %0 : i32 to index
// CHECK-NEXT:      %2 = arith.cmpi slt, %1, %zero : index
// CHECK-NEXT:      %3 = arith.select %2, %zero, %1 : index
// CHECK-NEXT:      %4 = arith.cmpi sgt, %3, %c : index
// CHECK-NEXT:      %5 = arith.select %4, %c, %3 : index
// CHECK-NEXT:      affine.for %j = 0 to 6 {
// CHECK-NEXT:        %6 = memref.load %in0[%5, %j] : memref<10x6xf32>
// CHECK-NEXT:        %7 = affine.load %in2[%i, %j] : memref<8x6xf32>
// CHECK-NEXT:        %8 = arith.addf %6, %7 : f32
// CHECK-NEXT:        affine.store %8, %out0[%i, %j] : memref<5x6xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-NEXT:  }
