// RUN: not xdsl-opt %s -p poet-annotate 2>&1 | filecheck %s
// RUN: not xdsl-opt %s -p 'poet-annotate{device="mkr"}' 2>&1 | filecheck %s --check-prefix=DEVICE

// CHECK: poet.compute "negate": it has no kernel; run poet-lower-kernels before poet-annotate
// DEVICE: unknown device 'mkr'; known devices are arduino-nano-33-ble, {{.*}}nrf52840, {{.*}}rpi4b, 
poet.graph @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = poet.compute "negate" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %a : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}
