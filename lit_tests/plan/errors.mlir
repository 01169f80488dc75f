// RUN: not xdsl-opt %s -t plan 2>&1 | filecheck %s

// CHECK: poet.compute "double" makes nothing that a result depends on; a plan cannot run it

poet.graph @main(%x: tensor<8xf32> {poet.offset = 0 : i64}) -> (tensor<8xf32>)
    attributes {schedule = {}, arena_bytes = 64 : i64, storage_bytes = 0 : i64} {
  %y = poet.compute "double" (%a = %x : tensor<8xf32>) -> tensor<8xf32> kernel @double offsets [32] {
    %s = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  poet.free %y : tensor<8xf32>
  poet.return %x : tensor<8xf32>
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
