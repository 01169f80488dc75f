// RUN: not xdsl-opt %s -p 'stablehlo-split{params="w:2"}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="0:2"}' 2>&1 | filecheck %s --check-prefix=INPUT
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="7:2"}' 2>&1 | filecheck %s --check-prefix=NUMBER
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="1:9"}' 2>&1 | filecheck %s --check-prefix=MANY
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="1@2:2"}' 2>&1 | filecheck %s --check-prefix=DIMENSION
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="1:2,2:3"}' 2>&1 | filecheck %s --check-prefix=ALIKE
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="1"}' 2>&1 | filecheck %s --check-prefix=SYNTAX
// RUN: not xdsl-opt %s -p 'stablehlo-split{params="1:2"},stablehlo-split{params="1:2"}' 2>&1 | filecheck %s --check-prefix=AGAIN

// UNKNOWN: --split=w:2: no parameter has that name; there are ['a'], ['b']
// INPUT: --split=0:2: argument 0 is no parameter that the step updates
// NUMBER: --split=7:2: there is no argument 7
// MANY: --split=1:9: no dimension of [4, 8] has that many
// DIMENSION: --split=1@2:2: there is no dimension 2 with 2 or more in [4, 8]
// ALIKE: --split=2:3: argument 1 is split in another way
// SYNTAX: '1' is no split: NAME:SHARDS or NAME@AXIS:SHARDS, with 2 or more shards
// AGAIN: --split=1:2: argument 1 is split already

func.func public @main(%x: tensor<4x8xf32>, %a: tensor<4x8xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4x8xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4x8xf32> {jax.result_info = "result['a']"}, tensor<4x8xf32> {jax.result_info = "result['b']"}) {
  %0 = stablehlo.add %a, %x : tensor<4x8xf32>
  %1 = stablehlo.add %b, %0 : tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}
