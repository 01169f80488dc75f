// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=48}' 2>&1 | filecheck %s
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=-4}' 2>&1 | filecheck %s --check-prefix=RAM
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=64},poet-stream{ram=64}' 2>&1 | filecheck %s --check-prefix=TWICE

// CHECK: fits into 560 B
// CHECK-SAME: that includes 512 B for a block of a page
// RAM: ram must be more than zero, not -4
// TWICE: graph @main is scheduled already

// The result is in RAM at the end.
poet.graph @main(%x: tensor<14xf32>) -> (tensor<14xf32>) {
  %y = poet.compute "negate" (%a = %x : tensor<14xf32>) -> tensor<14xf32> {
    %r = stablehlo.negate %a : tensor<14xf32>
    poet.yield %r : tensor<14xf32>
  }
  poet.return %y : tensor<14xf32>
}
