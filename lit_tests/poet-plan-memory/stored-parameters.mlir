// RUN: xdsl-opt %s -p 'poet-plan-memory,poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-plan-memory{unit=64},poet-verify' | filecheck %s --check-prefix=UNIT
// RUN: not xdsl-opt %s -p 'poet-plan-memory{unit=8}' 2>&1 | filecheck %s --check-prefix=SMALL

// Two records, then the constants %c and %kept, then the banks, in which %w and %v take 36 and 20
// bytes, then the page of the step. A new value has the place of the old one, in the other bank.

// CHECK:      poet.graph @main(%c: !poet.page<tensor<2xf32>> {poet.role = "param", poet.offset = 1024 : i64}, %w: !poet.page<tensor<8xf32>> {poet.role = "param", poet.updates = 1 : i64, poet.offset = 1536 : i64}, %kept: !poet.page<tensor<3xi1>> {poet.role = "param", poet.updates = 0 : i64, poet.offset = 1036 : i64}, %v: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 2 : i64, poet.offset = 1572 : i64})
// CHECK-SAME:   arena_bytes = 40 : i64, storage_bytes = 2572 : i64, bank_bytes = 512 : i64, storage_unit = 512 : i64
// CHECK:      %c_1 = poet.pagein %c offset {{[0-9]+}} :
// CHECK:      poet.pageout %w2 offset 1536
// CHECK:      poet.pageout %v2 offset 1572
// CHECK:      poet.pageout %h offset 2560

// UNIT: poet.offset = 128 : i64{{.*}} poet.offset = 192 : i64{{.*}} poet.offset = 140 : i64{{.*}} poet.offset = 228 : i64
// UNIT-SAME: storage_bytes = 332 : i64, bank_bytes = 64 : i64, storage_unit = 64 : i64

// SMALL: the unit of the storage image must be a multiple of 4 and at least 16, not 8

poet.graph @main(%c: !poet.page<tensor<2xf32>> {poet.role = "param"},
                 %w: !poet.page<tensor<8xf32>> {poet.role = "param", poet.updates = 1 : i64},
                 %kept: !poet.page<tensor<3xi1>> {poet.role = "param", poet.updates = 0 : i64},
                 %v: !poet.page<tensor<4xf32>> {poet.role = "param", poet.updates = 2 : i64})
    -> (!poet.page<tensor<3xi1>>, !poet.page<tensor<8xf32>>, !poet.page<tensor<4xf32>>) {
  %c_1 = poet.pagein %c : !poet.page<tensor<2xf32>> -> tensor<2xf32>
  %w_1 = poet.pagein %w : !poet.page<tensor<8xf32>> -> tensor<8xf32>
  %w2 = poet.compute "update" (%a = %w_1 : tensor<8xf32>) -> tensor<8xf32> inplace [[0, 0]] {
    %r = stablehlo.negate %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %w2_page = poet.pageout %w2 : tensor<8xf32> -> !poet.page<tensor<8xf32>>
  poet.free %w2 : tensor<8xf32>
  %v_1 = poet.pagein %v : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %v2 = poet.compute "update" (%a = %v_1 : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    %r = stablehlo.negate %a : tensor<4xf32>
    poet.yield %r : tensor<4xf32>
  }
  %v2_page = poet.pageout %v2 : tensor<4xf32> -> !poet.page<tensor<4xf32>>
  poet.free %v2 : tensor<4xf32>
  %h = poet.compute "forward" (%a = %c_1 : tensor<2xf32>) -> tensor<2xf32> inplace [[0, 0]] {
    %r = stablehlo.negate %a : tensor<2xf32>
    poet.yield %r : tensor<2xf32>
  }
  %h_page = poet.pageout %h : tensor<2xf32> -> !poet.page<tensor<2xf32>>
  poet.free %h : tensor<2xf32>
  poet.return %kept, %w2_page, %v2_page : !poet.page<tensor<3xi1>>, !poet.page<tensor<8xf32>>, !poet.page<tensor<4xf32>>
}
