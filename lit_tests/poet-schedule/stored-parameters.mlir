// RUN: xdsl-opt %s -p 'poet-schedule{params="storage" ram=128 device="nrf52840"},poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-schedule{params="storage" ram=128 device="nrf52840"}' --print-op-generic | xdsl-opt -p poet-verify | filecheck %s
// RUN: xdsl-opt %s -p 'poet-schedule{ram=128 device="nrf52840"},poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-schedule{ram=224 device="nrf52840"}' | filecheck %s --check-prefix=RAM
// RUN: xdsl-opt %s -p 'poet-schedule{params="storage" device="nrf52840"}' | filecheck %s --check-prefix=UNLIMITED
// RUN: xdsl-opt %s -p 'poet-schedule{params="storage" paging=false ram=192 device="nrf52840"}' | filecheck %s --check-prefix=OFF

// %w is read twice; "loss" leaves no room for it, so it is paged in twice. The new value is written,
// the constant %c is not, and %k, returned as it is, is not even read. With parameters in RAM 224 bytes
// are needed.

// CHECK:      poet.graph @main(%x: tensor<8xf32>, %w: !poet.page<tensor<8xf32>> {poet.role = "param", poet.updates = 1 : i64}, %c: !poet.page<tensor<8xf32>> {poet.role = "param"}, %k: !poet.page<tensor<8xf32>> {poet.role = "param", poet.updates = 2 : i64})
// CHECK-SAME:   -> (tensor<8xf32>, !poet.page<tensor<8xf32>>, !poet.page<tensor<8xf32>>)
// CHECK-SAME:   ram = 128 : i64, storage_unit = 512 : i64
// CHECK-SAME:   page_ins = 3 : i64, page_outs = 1 : i64
// CHECK-SAME:   params = "storage"
// CHECK-DAG:  [[W:%w[_0-9]*]] = poet.pagein %w : !poet.page<tensor<8xf32>> -> tensor<8xf32>
// CHECK-DAG:  [[C:%c[_0-9]*]] = poet.pagein %c : !poet.page<tensor<8xf32>> -> tensor<8xf32>
// CHECK:      %h = poet.compute "forward" (%a = %x : tensor<8xf32>, %b = [[W]] : tensor<8xf32>, %d = [[C]] : tensor<8xf32>)
// CHECK-DAG:  poet.free [[W]] : tensor<8xf32>
// CHECK-DAG:  poet.free [[C]] : tensor<8xf32>
// CHECK:      poet.compute "loss"
// CHECK:      [[W2:%w[_0-9]*]] = poet.pagein %w : !poet.page<tensor<8xf32>> -> tensor<8xf32>
// CHECK-NEXT: %w1 = poet.compute "update" (%a = [[W2]] : tensor<8xf32>, %b = %h : tensor<8xf32>, %d = %y : tensor<8xf32>) -> tensor<8xf32> inplace {{\[\[}}0, 0]]
// CHECK:      %w1_page = poet.pageout %w1 : tensor<8xf32> -> !poet.page<tensor<8xf32>>
// CHECK:      poet.free %w1 : tensor<8xf32>
// CHECK-NEXT: poet.return %y, %w1_page, %k : tensor<8xf32>, !poet.page<tensor<8xf32>>, !poet.page<tensor<8xf32>>

// RAM:        poet.graph @main(%x: tensor<8xf32>, %w: tensor<8xf32>
// RAM-SAME:     page_ins = 0 : i64, page_outs = 0 : i64{{.*}} params = "ram"

// Without a limit each is read once. The program with unlimited RAM for comparison has them in RAM.
// UNLIMITED:      strategy = "keep-all"
// UNLIMITED-SAME: page_ins = 2 : i64, page_outs = 1 : i64, unlimited_energy_nj = 15 : i64, unlimited_makespan_ns = 15 : i64, unlimited_peak_bytes = 224 : i64, params = "storage"

// Without paging parameters are moved, nothing else is.
// OFF:     poet.pagein %w
// OFF-NOT: poet.pageout %h
// OFF:     poet.return

poet.graph @main(%x: tensor<8xf32>, %w: tensor<8xf32> {poet.role = "param", poet.updates = 1 : i64}, %c: tensor<8xf32> {poet.role = "param"}, %k: tensor<8xf32> {poet.role = "param", poet.updates = 2 : i64}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %h = poet.compute "forward" (%a = %x : tensor<8xf32>, %b = %w : tensor<8xf32>, %d = %c : tensor<8xf32>) -> tensor<8xf32> cost #poet.cost<energy_nj = 5, time_ns = 5, workspace = 0, flops = 0> {
    %r = stablehlo.multiply %a, %b : tensor<8xf32>
    %s = stablehlo.multiply %r, %d : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  %y = poet.compute "loss" (%a = %h : tensor<8xf32>) -> tensor<8xf32> cost #poet.cost<energy_nj = 5, time_ns = 5, workspace = 64, flops = 0> {
    %r = stablehlo.negate %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %w1 = poet.compute "update" (%a = %w : tensor<8xf32>, %b = %h : tensor<8xf32>, %d = %y : tensor<8xf32>) -> tensor<8xf32> inplace [[0, 0]] cost #poet.cost<energy_nj = 5, time_ns = 5, workspace = 0, flops = 0> {
    %s = stablehlo.subtract %a, %b : tensor<8xf32>
    %r = stablehlo.subtract %s, %d : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.return %y, %w1, %k : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
