// RUN: not xdsl-opt %s -p 'poet-schedule{ram=71}' 2>&1 | filecheck %s
// RUN: not xdsl-opt %s -p 'poet-schedule{ram=80 deadline=200}' 2>&1 | filecheck %s --check-prefix=DEADLINE
// RUN: not xdsl-opt %s -p 'poet-schedule{ram=0}' 2>&1 | filecheck %s --check-prefix=ZERO
// RUN: not xdsl-opt %s -p 'poet-schedule{strategy="best"}' 2>&1 | filecheck %s --check-prefix=STRATEGY
// RUN: not xdsl-opt %s -p 'poet-schedule{ram_scope="half"}' 2>&1 | filecheck %s --check-prefix=SCOPE
// RUN: not xdsl-opt %s -p poet-schedule,poet-schedule 2>&1 | filecheck %s --check-prefix=TWICE

// CHECK: graph @main: no schedule with the kernels in this order fits into 71 B; at least 72 B are needed
// DEADLINE: graph @main: no schedule meets the deadline of 200 ns within 80 B; the step takes at least 205 ns; the fastest schedule known takes 210 ns
// ZERO: ram must be more than zero, not 0
// STRATEGY: unknown strategy 'best'; there are auto, capuchin
// SCOPE: ram-scope is all or activations, not half
// TWICE: graph @main is scheduled already

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
