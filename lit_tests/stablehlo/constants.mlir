// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

// Hexadecimal float literals are bit patterns, also in generic form.

// CHECK: stablehlo.constant dense<0xFF800000> : tensor<f32>
%0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
// CHECK-NEXT: stablehlo.constant dense<0xFF800000> : tensor<2xf32>
%1 = stablehlo.constant dense<"0x000080FF000080FF"> : tensor<2xf32>
// CHECK-NEXT: stablehlo.constant dense<0x7FC00000> : tensor<f32>
%2 = "stablehlo.constant"() <{value = dense<0x7FC00000> : tensor<f32>}> : () -> tensor<f32>
// CHECK-NEXT: stablehlo.constant dense<[1.000000e+00, 0xFF800000, 0x7FC00001]> : tensor<3xf32>
%3 = stablehlo.constant dense<[1.0, 0xFF800000, 0x7FC00001]> : tensor<3xf32>
// CHECK-NEXT: stablehlo.constant dense<[0.000000e+00, -0.000000e+00]> : tensor<2xf32>
%4 = stablehlo.constant dense<[0.0, -0.0]> : tensor<2xf32>
// CHECK-NEXT: stablehlo.constant dense<1.000000e-02> : tensor<2x2xf32>
%5 = stablehlo.constant dense<0.01> : tensor<2x2xf32>
// A float that a decimal without point would spell.
// CHECK-NEXT: stablehlo.constant dense<0x4CEB79A3> : tensor<f32>
%6 = stablehlo.constant dense<0x4CEB79A3> : tensor<f32>
// CHECK-NEXT: stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
%7 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
// CHECK-NEXT: stablehlo.constant dense<true> : tensor<i1>
%8 = stablehlo.constant dense<"0x01"> : tensor<i1>
// CHECK-NEXT: stablehlo.constant dense<{{\[\[}}-1, 2], [3, 4]]> : tensor<2x2xi32>
%9 = stablehlo.constant dense<[[-1, 2], [3, 4]]> : tensor<2x2xi32>
// CHECK-NEXT: stablehlo.constant dense<> : tensor<0xf32>
%10 = stablehlo.constant dense<> : tensor<0xf32>
