// RUN: xdsl-opt %s -p 'stablehlo-pages{type=f16}' | filecheck %s
// RUN: xdsl-opt %s -p 'stablehlo-pages{type=bf16 frozen=f}' | filecheck %s --check-prefix=FROZEN

// The weight is widened once and rounded at the end; momentum and what is no weight stay as they are.
// CHECK:      func.func public @main(%w: tensor<4xf16> {{.*}}, %m: tensor<4xf32> {{.*}}, %f: tensor<4xf32> {{.*}}) -> (tensor<4xf32>, tensor<4xf16>, tensor<4xf32>)
// CHECK-NEXT: %[[WIDE:.*]] = stablehlo.convert %w : (tensor<4xf16>) -> tensor<4xf32>
// CHECK-NEXT: %l = stablehlo.multiply %[[WIDE]], %f
// CHECK-NEXT: %n = stablehlo.add %m, %f
// CHECK-NEXT: %v = stablehlo.subtract %[[WIDE]], %n
// CHECK-NEXT: %[[NEW:.*]] = stablehlo.convert %v : (tensor<4xf32>) -> tensor<4xf16>
// CHECK-NEXT: func.return %l, %[[NEW]], %n

// FROZEN: @main(%w: tensor<4xbf16> {{.*}}, %m: tensor<4xf32> {{.*}}, %f: tensor<4xbf16> {{.*}})
func.func public @main(%w: tensor<4xf32> {poet.name = "w", tf.aliasing_output = 1 : i32}, %m: tensor<4xf32> {tf.aliasing_output = 2 : i32}, %f: tensor<4xf32> {poet.name = "f"}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %l = stablehlo.multiply %w, %f: tensor<4xf32>
  %n = stablehlo.add %m, %f: tensor<4xf32>
  %v = stablehlo.subtract %w, %n : tensor<4xf32>
  func.return %l, %v, %n : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
