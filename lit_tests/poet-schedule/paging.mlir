// RUN: xdsl-opt %s -p 'poet-schedule{ram=80 device="nrf52840" remat=false},poet-verify' | filecheck %s

// Without recomputing %h goes to auxiliary storage and comes back.

// CHECK:      %h = poet.compute "spread"
// CHECK:      %h_page = poet.pageout %h : tensor<16xf32> -> !poet.page<tensor<16xf32>>
// CHECK:      poet.free %h
// CHECK:      poet.free %m
// CHECK-NEXT: %h_1 = poet.pagein %h_page : !poet.page<tensor<16xf32>> -> tensor<16xf32>
// CHECK-NEXT: %y = poet.compute "sum_scaled" (%a = %h_1

poet.graph @main(%x: tensor<f32>) -> (tensor<f32>) {
  %h = poet.compute "spread" (%a = %x : tensor<f32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 5, time_ns = 5, workspace = 0, flops = 0> {
    %r = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  %s = poet.compute "sum" (%a = %h : tensor<16xf32>) -> tensor<f32> cost #poet.cost<energy_nj = 50, time_ns = 50, workspace = 0, flops = 16> {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : (tensor<16xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %r : tensor<f32>
  }
  %m = poet.compute "spread" (%a = %s : tensor<f32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 50, time_ns = 50, workspace = 0, flops = 0> {
    %r = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  %t = poet.compute "sum" (%a = %m : tensor<16xf32>) -> tensor<f32> cost #poet.cost<energy_nj = 50, time_ns = 50, workspace = 0, flops = 16> {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : (tensor<16xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %r : tensor<f32>
  }
  %y = poet.compute "sum_scaled" (%a = %h : tensor<16xf32>, %b = %t : tensor<f32>) -> tensor<f32> inplace [[0, 1]] cost #poet.cost<energy_nj = 50, time_ns = 50, workspace = 0, flops = 32> {
    %r = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0] : (tensor<16xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %r : tensor<f32>
  }
  poet.return %y : tensor<f32>
}
