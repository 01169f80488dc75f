// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="mkr1000"}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"}' | filecheck %s --check-prefix=NRF
// RUN: xdsl-opt %s -p poet-lower-kernels,poet-annotate | filecheck %s --check-prefix=HOST

// Four products and four sums for each of three results: 24 operations at 166,667 a second and 0.066 W.
// Moving values costs memory traffic only: 12 loads and 12 stores of 4 bytes at 96e6 a second.
// Other cores have cycles. The product has 24 loads, 3 stores, 24 operations of sums and 15 iterations of 4
// loops: 24 * 1.34 + 3 * 2.28 + 24 * 1.48 + 15 * 3.84 + 4 * 8.34 = 165.48 at 64 MHz and 0.0109824 W, and
// 24 * 0.05 + 3 * 0.05 + 24 * 0.251 + 15 * 0.17 + 4 * 0.569 = 12.2 at 2.6 GHz and 10 W. The transposition has
// 12 loads, 12 stores, and as many iterations and loops: 134.4 and 6.026.
// CHECK:       poet.graph @main
// CHECK-SAME:      device = "mkr1000"
// CHECK:       poet.compute "dot"
// CHECK-SAME:      cost #poet.cost<energy_nj = 9504, time_ns = 144000, workspace = 0, flops = 24>
// CHECK:       poet.compute "transpose"
// CHECK-SAME:      cost #poet.cost<energy_nj = 66, time_ns = 1000, workspace = 0, flops = 0>

// NRF:         device = "nrf52840"
// NRF:         poet.compute "dot"
// NRF-SAME:        cost #poet.cost<energy_nj = 29, time_ns = 2586, workspace = 0, flops = 24>
// NRF:         poet.compute "transpose"
// NRF-SAME:        cost #poet.cost<energy_nj = 24, time_ns = 2100, workspace = 0, flops = 0>

// HOST:        device = "host"
// HOST:        poet.compute "dot"
// HOST-SAME:       cost #poet.cost<energy_nj = 47, time_ns = 5, workspace = 0, flops = 24>
// HOST:        poet.compute "transpose"
// HOST-SAME:       cost #poet.cost<energy_nj = 24, time_ns = 3, workspace = 0, flops = 0>
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
