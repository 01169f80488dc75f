// Kernels that are not ours: bodies call functions that are only declared, and attributes say which
// results may be in place of which operands.
// RUN: xdsl-opt %s -p 'poet-schedule{ram=512},poet-plan-memory,poet-verify' | filecheck %s

func.func private @relu(tensor<64xf32>) -> tensor<64xf32>
func.func private @turn(tensor<64xf32>) -> tensor<64xf32>

// CHECK: poet.graph @main
// CHECK: %h = poet.compute "h"
// CHECK: %r = poet.compute "r" (%a = %h : tensor<64xf32>) -> tensor<64xf32> inplace {{\[\[0, 0\]\]}}
// CHECK-SAME: offsets [[AT:.*]] attributes {may_share
// CHECK: %t = poet.compute "t" (%a = %r : tensor<64xf32>) -> tensor<64xf32> cost
// CHECK: poet.free %r
// CHECK: poet.return %y
poet.graph @main(%x: tensor<64xf32>) -> tensor<64xf32> attributes {io = "caller"} {
  %h = poet.compute "h" (%a = %x : tensor<64xf32>) -> tensor<64xf32>
      cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0> {
    %0 = func.call @turn(%a) : (tensor<64xf32>) -> tensor<64xf32>
    poet.yield %0 : tensor<64xf32>
  }
  %r = poet.compute "r" (%a = %h : tensor<64xf32>) -> tensor<64xf32>
      cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0>
      attributes {may_share = [array<i64: 0, 0>]} {
    %0 = func.call @relu(%a) : (tensor<64xf32>) -> tensor<64xf32>
    poet.yield %0 : tensor<64xf32>
  }
  %t = poet.compute "t" (%a = %r : tensor<64xf32>) -> tensor<64xf32>
      cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0> {
    %0 = func.call @turn(%a) : (tensor<64xf32>) -> tensor<64xf32>
    poet.yield %0 : tensor<64xf32>
  }
  %y = poet.compute "y" (%a = %t : tensor<64xf32>) -> tensor<64xf32>
      cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0> {
    %0 = func.call @turn(%a) : (tensor<64xf32>) -> tensor<64xf32>
    poet.yield %0 : tensor<64xf32>
  }
  poet.return %y : tensor<64xf32>
}
