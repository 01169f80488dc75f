// RUN: xdsl-opt %s -p 'poet-plan-transfers{device="nrf52840"},poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-plan-transfers{device="nrf52840"},poet-plan-transfers{device="nrf52840"}' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-plan-transfers{device="host"},poet-verify' | filecheck %s --check-prefix=HOST
// RUN: xdsl-opt %s -p 'poet-plan-transfers{device="nrf52840"},poet-plan-transfers{device="host"}' | filecheck %s --check-prefix=WHOLE

// A transfer takes about 0.11 ms, a kernel 0.3 ms. With DMA, writing %h1 overlaps "f2", which may read it
// meanwhile, and reading it back overlaps "b3", within the 256 bytes of RAM. Without
// DMA nothing moves, and transfers that were split are whole again.

// CHECK:      %h1 = poet.compute "f1"
// CHECK:      %h1_page_transfer = poet.pageout_start %h1 : tensor<16xf32> -> !poet.transfer<!poet.page<tensor<16xf32>>>
// CHECK-NEXT: poet.free %x
// CHECK-NEXT: %h2 = poet.compute "f2"
// CHECK:      %h1_page = poet.wait %h1_page_transfer
// CHECK-NEXT: poet.free %h1 :
// CHECK-NEXT: %h3 = poet.compute "f3"
// CHECK:      %h1_transfer = poet.pagein_start %h1_page : !poet.page<tensor<16xf32>> -> !poet.transfer<tensor<16xf32>>
// CHECK-NEXT: %g2 = poet.compute "b3"
// CHECK:      %h1_1 = poet.wait %h1_transfer
// CHECK-NEXT: %g1 = poet.compute "b2" (%a = %g2 : tensor<16xf32>, %b = %h1_1

// HOST:      %h1_page = poet.pageout %h1
// HOST-NEXT: poet.free %h1 :
// HOST-NEXT: %h3 = poet.compute "f3"
// HOST:      %h1_1 = poet.pagein %h1_page
// HOST-NEXT: %g1 = poet.compute "b2"

// WHOLE-NOT:  poet.wait
// WHOLE:      %h1_page = poet.pageout %h1
// WHOLE-NOT:  poet.wait
// WHOLE:      %h1_1 = poet.pagein %h1_page
// WHOLE-NOT:  poet.wait

poet.graph @main(%x: tensor<16xf32>) -> (tensor<16xf32>) attributes {ram = 256 : i64} {
  %h1 = poet.compute "f1" (%a = %x : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 300000, workspace = 0, flops = 0> {
    %r = stablehlo.negate %a : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %x : tensor<16xf32>
  %h2 = poet.compute "f2" (%a = %h1 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 300000, workspace = 0, flops = 0> {
    %r = stablehlo.negate %a : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  %h1_page = poet.pageout %h1 : tensor<16xf32> -> !poet.page<tensor<16xf32>>
  poet.free %h1 : tensor<16xf32>
  %h3 = poet.compute "f3" (%a = %h2 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 300000, workspace = 0, flops = 0> {
    %r = stablehlo.negate %a : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  %g2 = poet.compute "b3" (%a = %h2 : tensor<16xf32>, %b = %h3 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 300000, workspace = 0, flops = 0> {
    %r = stablehlo.multiply %a, %b : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %h2 : tensor<16xf32>
  poet.free %h3 : tensor<16xf32>
  %h1_1 = poet.pagein %h1_page : !poet.page<tensor<16xf32>> -> tensor<16xf32>
  %g1 = poet.compute "b2" (%a = %g2 : tensor<16xf32>, %b = %h1_1 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 300000, workspace = 0, flops = 0> {
    %r = stablehlo.multiply %a, %b : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %g2 : tensor<16xf32>
  poet.free %h1_1 : tensor<16xf32>
  poet.return %g1 : tensor<16xf32>
}
