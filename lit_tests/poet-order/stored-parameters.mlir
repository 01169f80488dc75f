// RUN: xdsl-opt %s -p 'poet-order{params=storage}' | filecheck %s
// RUN: xdsl-opt %s -p poet-order | filecheck %s --check-prefix RAM
// RUN: not xdsl-opt %s -p 'poet-order{params=flash}' 2>&1 | filecheck %s --check-prefix WRONG

// A parameter on storage is in RAM only while a kernel reads it: "big" needs %w beside what is alive, so
// it runs before "left" makes 16 numbers of 8. With %w in RAM all the time, the given order is as good.

// CHECK-LABEL: poet.graph @main
// CHECK:         poet.compute "big"
// CHECK:         poet.compute "left"
// CHECK:         poet.compute "join"

// RAM-LABEL: poet.graph @main
// RAM:         poet.compute "left"
// RAM:         poet.compute "big"

// WRONG: params is ram or storage, not flash

poet.graph @main(%x: tensor<8xf32>, %w: tensor<64xf32> {poet.role = "param"}) -> tensor<8xf32> {
  %l = poet.compute "left" (%a = %x : tensor<8xf32>) -> tensor<16xf32> {
    %r = stablehlo.concatenate %a, %a, dim = 0 : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>
    poet.yield %r : tensor<16xf32>
  }
  %m = poet.compute "big" (%b = %w : tensor<64xf32>) -> tensor<8xf32> {
    %r = stablehlo.slice %b [0:8] : (tensor<64xf32>) -> tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %s = poet.compute "join" (%a = %l : tensor<16xf32>, %b = %m : tensor<8xf32>) -> tensor<8xf32> {
    %h = stablehlo.slice %a [4:12] : (tensor<16xf32>) -> tensor<8xf32>
    %r = stablehlo.add %h, %b : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.return %s : tensor<8xf32>
}
