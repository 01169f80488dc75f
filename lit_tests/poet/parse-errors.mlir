// RUN: xdsl-opt %s --parsing-diagnostics --split-input-file | filecheck %s

// CHECK:      {{.*}}parse-errors.mlir:6:73
// CHECK:      expected a pair [result, operand]
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> inplace [[0]] {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK:      {{.*}}parse-errors.mlir:17:69
// CHECK:      expected #poet.cost<...>
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> cost 3 : i64 {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK: Expected 'time_ns'
"test.op"() {cost = #poet.cost<energy_nj = 1, flops = 2>} : () -> ()
