// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=60000},poet-plan-memory,poet-read-ahead{device=nrf52840},poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=60000},poet-plan-memory,poet-read-ahead{device=nrf52840},poet-verify' | xdsl-opt -p poet-verify | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=lm3s6965-cortex-m4},poet-stream{ram=60000},poet-plan-memory,poet-read-ahead{device=lm3s6965-cortex-m4},poet-verify' | filecheck %s --check-prefix=NONE
// RUN: not xdsl-opt %s -p 'poet-lower-kernels,poet-annotate{device=nrf52840},poet-stream{ram=60000},poet-read-ahead{device=nrf52840}' 2>&1 | filecheck %s --check-prefix=PLAN

// Where RAM is left beside a kernel in tiles, blocks of the next slice are read while a tile runs; on
// a device without DMA there is nothing to gain.
// CHECK:      poet.slice_in %in1{{.*}} buffer {{[0-9]+}} ahead {{[0-9]+}} blocks {{[0-9]+}} :
// NONE-NOT:   ahead
// PLAN:       graph @main has no arena; run poet-plan-memory first
poet.graph @main(%x: tensor<4x64xf32> {poet.role = "input"}, %w: tensor<1024x64xf32> {poet.role = "param"}) -> tensor<4x1024xf32> {
  %0 = poet.compute "dot" (%a = %x : tensor<4x64xf32>, %b = %w : tensor<1024x64xf32>) -> tensor<4x1024xf32> {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4x64xf32>, tensor<1024x64xf32>) -> tensor<4x1024xf32>
    poet.yield %1 : tensor<4x1024xf32>
  }
  poet.return %0 : tensor<4x1024xf32>
}
