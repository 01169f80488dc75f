// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-schedule{ram=32 io=caller},poet-plan-memory,poet-verify' | filecheck %s
// RUN: xdsl-opt %s -p 'poet-lower-kernels,poet-schedule{io=caller},poet-plan-memory' -t c | filecheck %s --check-prefix=C

// The input and the loss have no place in the arena and no end: only the parameter and %h are there.
// "gradient" reads the input for the last time, too, but its result lies over %h.

// CHECK:      poet.graph @main(%w: tensor<4xf32> {poet.role = "param", poet.updates = 1 : i64, poet.offset = {{[0-9]+}} : i64}, %x: tensor<4xf32> {poet.role = "input"})
// CHECK-SAME:   io = "caller", ram = 32 : i64
// CHECK-SAME:   arena_bytes = 32 : i64
// CHECK:      poet.compute "h"{{.*}} offsets [{{[0-9]+}}] {
// CHECK:      poet.compute "loss"{{.*}} offsets [-1] {
// CHECK-NOT:  poet.free %x
// CHECK:      poet.compute "gradient"{{.*}} inplace {{\[\[}}0, 1]]
// CHECK:      poet.compute "update"{{.*}} inplace {{\[\[}}0, 0]]
// CHECK:      poet.return %loss, %w2

// C:      #define MODEL_ARENA_BYTES   32
// C:      #define MODEL_CALLER_BYTES 20
// C:      poetc_status model_step(poetc_store *store, const float *argument1, float *result0);
// C:      #define MODEL_STEP_ON(store, argument, result) \
// C-NEXT:     model_step(store, (const float *)(argument)[1], (float *)(result)[0])
// C:      model_kernel_h(at({{[0-9]+}}), argument1, at({{[0-9]+}}));
// C:      model_kernel_loss(at({{[0-9]+}}), result0);

poet.graph @main(%w: tensor<4xf32> {poet.role = "param", poet.updates = 1 : i64}, %x: tensor<4xf32> {poet.role = "input"}) -> (tensor<f32>, tensor<4xf32>) {
  %h = poet.compute "h" (%a = %w : tensor<4xf32>, %b = %x : tensor<4xf32>) -> tensor<4xf32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 1> {
    %0 = stablehlo.multiply %a, %b : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  %loss = poet.compute "loss" (%a = %h : tensor<4xf32>) -> tensor<f32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 1> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %0 : tensor<f32>
  }
  %g = poet.compute "gradient" (%a = %x : tensor<4xf32>, %b = %h : tensor<4xf32>) -> tensor<4xf32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 1> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  %w2 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %g : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 1> {
    %0 = stablehlo.subtract %a, %b : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }
  poet.return %loss, %w2 : tensor<f32>, tensor<4xf32>
}
