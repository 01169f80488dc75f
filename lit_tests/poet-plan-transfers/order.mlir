// RUN: xdsl-opt %s -p 'poet-plan-transfers{device="nrf52840"},poet-verify' | filecheck %s

// Three parameters on storage, read at once: all page-ins start before the first kernel, and each
// is waited for in the order of the starts, though %c is needed first. A page-out that is waited for
// at once stays whole. The new value of %a is written while "fourth" runs.

// CHECK:      %a_transfer = poet.pagein_start %a
// CHECK-NEXT: %b_transfer = poet.pagein_start %b
// CHECK-NEXT: %c_transfer = poet.pagein_start %c
// CHECK-NEXT: %y = poet.compute "first"
// CHECK:      %a_1 = poet.wait %a_transfer
// CHECK-NEXT: %b_1 = poet.wait %b_transfer
// CHECK-NEXT: %c_1 = poet.wait %c_transfer
// CHECK-NEXT: %z = poet.compute "second" (%p = %y : tensor<16xf32>, %q = %c_1
// CHECK:      %w = poet.compute "third"
// CHECK:      poet.free %c_1
// CHECK-NEXT: %w_page = poet.pageout %w : tensor<16xf32> -> !poet.page<tensor<16xf32>>
// CHECK-NEXT: poet.free %w
// CHECK-NEXT: %w_transfer = poet.pagein_start %w_page
// CHECK-NEXT: %a_new = poet.compute "update"
// CHECK:      %a_page_transfer = poet.pageout_start %a_new
// CHECK-NEXT: %w_1 = poet.wait %w_transfer
// CHECK-NEXT: %v = poet.compute "fourth"
// CHECK:      poet.free %z
// CHECK-NEXT: poet.free %w_1
// CHECK-NEXT: %a_page = poet.wait %a_page_transfer
// CHECK-NEXT: poet.free %a_new
// CHECK-NEXT: poet.return %v, %a_page

poet.graph @main(%x: tensor<16xf32>,
                 %a: !poet.page<tensor<16xf32>> {poet.role = "param", poet.updates = 1 : i64},
                 %b: !poet.page<tensor<16xf32>> {poet.role = "param"},
                 %c: !poet.page<tensor<16xf32>> {poet.role = "param"})
    -> (tensor<16xf32>, !poet.page<tensor<16xf32>>) attributes {storage_unit = 512 : i64} {
  %a_1 = poet.pagein %a : !poet.page<tensor<16xf32>> -> tensor<16xf32>
  %b_1 = poet.pagein %b : !poet.page<tensor<16xf32>> -> tensor<16xf32>
  %c_1 = poet.pagein %c : !poet.page<tensor<16xf32>> -> tensor<16xf32>
  %y = poet.compute "first" (%p = %x : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 400000, workspace = 0, flops = 0> {
    %r = stablehlo.negate %p : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %x : tensor<16xf32>
  %z = poet.compute "second" (%p = %y : tensor<16xf32>, %q = %c_1 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 400000, workspace = 0, flops = 0> {
    %r = stablehlo.add %p, %q : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %y : tensor<16xf32>
  %w = poet.compute "third" (%p = %z : tensor<16xf32>, %q = %b_1 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 400000, workspace = 0, flops = 0> {
    %r = stablehlo.add %p, %q : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %b_1 : tensor<16xf32>
  poet.free %c_1 : tensor<16xf32>
  %w_page = poet.pageout %w : tensor<16xf32> -> !poet.page<tensor<16xf32>>
  poet.free %w : tensor<16xf32>
  %w_1 = poet.pagein %w_page : !poet.page<tensor<16xf32>> -> tensor<16xf32>
  %a_new = poet.compute "update" (%p = %a_1 : tensor<16xf32>, %q = %z : tensor<16xf32>) -> tensor<16xf32> inplace [[0, 0]] cost #poet.cost<energy_nj = 1, time_ns = 400000, workspace = 0, flops = 0> {
    %r = stablehlo.add %p, %q : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  %v = poet.compute "fourth" (%p = %z : tensor<16xf32>, %q = %w_1 : tensor<16xf32>) -> tensor<16xf32> cost #poet.cost<energy_nj = 1, time_ns = 400000, workspace = 0, flops = 0> {
    %r = stablehlo.add %p, %q : tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  poet.free %z : tensor<16xf32>
  poet.free %w_1 : tensor<16xf32>
  %a_page = poet.pageout %a_new : tensor<16xf32> -> !poet.page<tensor<16xf32>>
  poet.free %a_new : tensor<16xf32>
  poet.return %v, %a_page : tensor<16xf32>, !poet.page<tensor<16xf32>>
}
