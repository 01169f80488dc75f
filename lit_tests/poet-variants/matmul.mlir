// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=20000 most=3}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=20000 most=3}' | xdsl-opt | filecheck %s
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=8}' 2>&1 | filecheck %s --check-prefix=SMALL
// RUN: not xdsl-opt %s -p poet-lower-kernels,poet-variants 2>&1 | filecheck %s --check-prefix=COST

// Three tensors of 64 x 64 numbers, 16,384 bytes each. Loops: 0 and 1 over the result, 2 over the blocks of the
// sum, 3 in a block.
// CHECK:      poet.compute "dot"
// CHECK-SAME:   poet.variants = [
// In less than 512 bytes, in tiles of all loops:
// CHECK-SAME:   #poet.variant<ram = {{[0-9]+}}, moved = {{[0-9]+}}, least = {{[0-9]+}}, runs = {{[0-9]+}}, time_ns = {{[0-9]+}}, energy_nj = {{[0-9]+}}, buffers = 1, resident = [],
// With room for an operand, everything is moved once:
// CHECK-SAME:   #poet.variant<ram = 1{{[0-9]+}}, moved = 49152, least = 49152, runs = {{[0-9]+}},
// CHECK-SAME:   resident = [], nests = {{\[}}[0, 1, 2, 3] tiles [{{[0123]}} by {{[0-9]+}}]]>]
// SMALL:      poet.compute "dot": it cannot run in tiles within 8 bytes
// COST:       poet.compute "dot": it has no kernel with a cost; run poet-annotate before
poet.graph @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = poet.compute "dot" (%a = %x : tensor<64x64xf32>, %b = %w : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    poet.yield %0 : tensor<64x64xf32>
  }
  poet.return %y : tensor<64x64xf32>
}
