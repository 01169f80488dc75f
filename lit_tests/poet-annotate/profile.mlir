// Costs that were measured take the place of those that follow from the device.
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{profile="%p/profile.toml"}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="mps2-an386-cortex-m4" profile="%p/profile.toml"}' | filecheck %s --check-prefix=M4
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device="rpi4b" profile="%p/profile.toml"}' 2>&1 | filecheck %s --check-prefix=CLOCK
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{profile="%p/empty.toml"}' 2>&1 | filecheck %s --check-prefix=MISSING

// CHECK: device = "microbit-cortex-m0, measured on microbit, cortex-m0"
// CHECK: poet.compute "negate"
// CHECK-SAME: cost #poet.cost<energy_nj = 2090, time_ns = 95000, workspace = 0, flops = 4>
// M4: cost #poet.cost<energy_nj = 237, time_ns = 55200, workspace = 0, flops = 4>
// CLOCK: device rpi4b does not say clock_hz and cycles_per_instruction, which make time of them
// MISSING: lacks 1 kernel of this model: "negate" ({{[0-9a-f]+}}); poetc profile MODEL --board=microbit --cpu=cortex-m0
poet.graph @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = poet.compute "negate" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %a : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}
