// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="mkr1000"}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"}' | filecheck %s --check-prefix=NRF
// RUN: xdsl-opt %s -p poet-lower-kernels,poet-annotate | filecheck %s --check-prefix=HOST

// Four products and four sums for each of three results: 24 operations at 166,667 a second and 0.066 W.
// Moving values costs memory traffic only: 12 loads and 12 stores of 4 bytes at 96e6 a second.
// The cycles of other cores are fitted: microseconds and nanoseconds.
// CHECK:       poet.graph @main
// CHECK-SAME:      device = "mkr1000"
// CHECK:       poet.compute "dot"
// CHECK-SAME:      cost #poet.cost<energy_nj = 9504, time_ns = 144000, workspace = 0, flops = 24>
// CHECK:       poet.compute "transpose"
// CHECK-SAME:      cost #poet.cost<energy_nj = 66, time_ns = 1000, workspace = 0, flops = 0>

// NRF:         device = "nrf52840"
// NRF:         poet.compute "dot"
// NRF-SAME:        cost #poet.cost<energy_nj = {{[1-9][0-9]}}, time_ns = {{[1-9][0-9][0-9][0-9]}}, workspace = 0, flops = 24>

// HOST:        device = "host"
// HOST:        poet.compute "dot"
// HOST-SAME:       cost #poet.cost<energy_nj = {{[1-9][0-9]}}, time_ns = {{[1-9]}}, workspace = 0, flops = 24>
poet.graph @main(%x: tensor<4xf32>, %w: tensor<4x3xf32>) -> (tensor<3xf32>, tensor<3x4xf32>) {
  %y = poet.compute "dot" (%a = %x : tensor<4xf32>, %b = %w : tensor<4x3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<4xf32>, tensor<4x3xf32>) -> tensor<3xf32>
    poet.yield %0 : tensor<3xf32>
  }
  %t = poet.compute "transpose" (%a = %w : tensor<4x3xf32>) -> tensor<3x4xf32> {
    %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
    poet.yield %0 : tensor<3x4xf32>
  }
  poet.return %y, %t : tensor<3xf32>, tensor<3x4xf32>
}
