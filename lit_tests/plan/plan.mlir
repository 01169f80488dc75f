// RUN: xdsl-opt %s -p poet-verify -t plan | filecheck %s

// A plan refers to tensors and operations by their numbers in a table that does not depend on the
// schedule. Operation 0 runs twice; free is nothing; a whole transfer is one that is waited for at
// once, a wait is for the transfer that was started first.

// CHECK:      plan for {{[0-9a-f]+}}: {{[0-9]+}} bytes, arena 128, storage 36, 7 steps
// CHECK-NEXT: argument t0 at 0
// CHECK-NEXT: argument t1 at 32
// CHECK-NEXT: page of t2 at 0
// CHECK-NEXT: 0: t2 at 64 = double(t0)
// CHECK-NEXT: page out t2
// CHECK-NEXT: wait
// CHECK-NEXT: 0: t2 at 96 = double(t0)
// CHECK-NEXT: page in t2 at 64
// CHECK-NEXT: wait
// CHECK-NEXT: 1: t3 at 32 = subtract(t1, t2), workspace at 0

poet.graph @main(
    %x: tensor<8xf32> {poet.role = "input", poet.offset = 0 : i64},
    %w: tensor<8xf32> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 32 : i64}
) -> (tensor<8xf32>)
    attributes {schedule = {}, ram = 128 : i64, arena_bytes = 128 : i64, storage_bytes = 36 : i64} {
  %y = poet.compute "double" (%a = %x : tensor<8xf32>) -> tensor<8xf32> kernel @double offsets [64] {
    %s = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  %t = poet.pageout_start %y offset 0 : tensor<8xf32> -> !poet.transfer<!poet.page<tensor<8xf32>>>
  %p = poet.wait %t : !poet.transfer<!poet.page<tensor<8xf32>>> -> !poet.page<tensor<8xf32>>
  poet.free %y : tensor<8xf32>
  %again = poet.compute "double" (%a = %x : tensor<8xf32>) -> tensor<8xf32> kernel @double offsets [96] {
    %s = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  poet.free %again : tensor<8xf32>
  poet.free %x : tensor<8xf32>
  %y2 = poet.pagein %p offset 64 : !poet.page<tensor<8xf32>> -> tensor<8xf32>
  %w2 = poet.compute "subtract" (%a = %w : tensor<8xf32>, %b = %y2 : tensor<8xf32>) -> tensor<8xf32> kernel @subtract inplace [[0, 0]] offsets [32] workspace_offset 0 {
    %s = stablehlo.subtract %a, %b : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  poet.free %y2 : tensor<8xf32>
  poet.return %w2 : tensor<8xf32>
}

func.func private @double(%in0: memref<8xf32>, %out0: memref<8xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 8 {
    %v = affine.load %in0[%i] : memref<8xf32>
    %s = arith.addf %v, %v : f32
    affine.store %s, %out0[%i] : memref<8xf32>
  }
  func.return
}

func.func private @subtract(%in0: memref<8xf32>, %in1: memref<8xf32>, %out0: memref<8xf32>, %ws: memref<2xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 1 : i64} {
  affine.for %i = 0 to 8 {
    %v = affine.load %in0[%i] : memref<8xf32>
    %w = affine.load %in1[%i] : memref<8xf32>
    %s = arith.subf %v, %w : f32
    affine.store %s, %out0[%i] : memref<8xf32>
  }
  func.return
}
