// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=40000}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=40000}' | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=8}' | filecheck %s --check-prefix=SMALL
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-variants{ram=40000}' 2>&1 | filecheck %s --check-prefix=COST

// Three tensors of 64 x 64 numbers, 16,384 bytes each. With two of them in RAM everything is moved once; in less, operands
// are read again. With the result in RAM, nothing is written.
// CHECK:      poet.compute "dot"
// CHECK-SAME:   poet.variants = [{streamed = array<i64: 0, 1, 2>, workspace_bytes = 32768 : i64, time_ns = {{[0-9]+}} : i64, bus_ns = {{[0-9]+}} : i64, energy_nj = {{[0-9]+}} : i64, read_bytes = 32768 : i64, written_bytes = 16384 : i64, least_moved_bytes = 49152 : i64}
// CHECK-SAME:   {streamed = array<i64: 0, 1, 2>, workspace_bytes = 13184 : i64, {{.*}}, read_bytes = 98304 : i64, written_bytes = 16384 : i64, least_moved_bytes = 49152 : i64}
// CHECK-SAME:   {streamed = array<i64: 0, 1>, {{.*}}, written_bytes = 0 : i64, least_moved_bytes = 32768 : i64}
// SMALL:      poet.variants = []
// COST:       poet.compute "dot" has no cost: poet-annotate comes before
poet.graph @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = poet.compute "dot" (%a = %x : tensor<64x64xf32>, %b = %w : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    poet.yield %0 : tensor<64x64xf32>
  }
  poet.return %y : tensor<64x64xf32>
}
