// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=2000}' | filecheck %s --check-prefix=TURN
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="nrf52840"},poet-variants{ram=40000}' | filecheck %s --check-prefix=ROWS

// A row has 4,000 bytes. In less RAM all rows are summed first, then all elements are computed: two nests, and
// what goes from one to the other is kept (loop 0 is in both). With more, one row is done after the other, and read
// once; nothing less is moved.
// TURN:       least = 64000,
// TURN-SAME:  nests = {{\[}}[0, 1, 2] tiles [{{.*}}], [0, 3] tiles [{{.*}}]]>
// ROWS:       moved = 64000, least = 64000,
// ROWS-SAME:  nests = {{\[}}[0] tiles [0 by {{[0-9]}}]]>]
poet.graph @main(%x: tensor<8x1000xf32>) -> tensor<8x1000xf32> {
  %y = poet.compute "share" (%a = %x : tensor<8x1000xf32>) -> tensor<8x1000xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x1000xf32>, tensor<f32>) -> tensor<8xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<8xf32>) -> tensor<8x1000xf32>
    %2 = stablehlo.divide %a, %1 : tensor<8x1000xf32>
    poet.yield %2 : tensor<8x1000xf32>
  }
  poet.return %y : tensor<8x1000xf32>
}
