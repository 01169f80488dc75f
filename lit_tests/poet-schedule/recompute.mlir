// RUN: xdsl-opt %s -p 'poet-schedule{ram=80}' | filecheck %s

// %h would have to stay in RAM beside %m: 132 bytes. It is cheaply recomputed from %x, which stays
// for it; the copy keeps the label. The result takes the place of %t.

// CHECK:      poet.graph @main(%x: tensor<f32>) -> tensor<f32>
// CHECK-SAME:   ram = 80 : i64
// CHECK-SAME:   strategy = "auto", status = "optimal", gap = 0.000000e+00 : f64, energy_nj = 210 : i64, bound_nj = 210 : i64, makespan_ns = 210 : i64, peak_bytes = 72 : i64, recomputes = 1 : i64, page_ins = 0 : i64, page_outs = 0 : i64, unlimited_energy_nj = 205 : i64, unlimited_makespan_ns = 205 : i64, unlimited_peak_bytes = 132 : i64
// CHECK:      %h = poet.compute "spread" (%a = %x
// CHECK:      %s = poet.compute "sum" (%a = %h
// CHECK:      poet.free %h
// CHECK:      %m = poet.compute "spread" (%a = %s
// CHECK:      poet.free %s
// CHECK:      %t = poet.compute "sum" (%a = %m
// CHECK:      poet.free %m
// CHECK:      %h_1 = poet.compute "spread" (%a = %x
// CHECK:      poet.free %x
// CHECK:      %y = poet.compute "sum_scaled" (%a = %h_1 : tensor<16xf32>, %b = %t : tensor<f32>) -> tensor<f32> inplace {{\[\[}}0, 1]]
// CHECK:      poet.free %h_1
// CHECK-NEXT: poet.return %y

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
