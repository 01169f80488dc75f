// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func private @dot_relu(memref<1x64xf32>, memref<64x32xf32>, memref<1x32xf32>) -> ()

poet.graph @main(%x: tensor<1x64xf32> {poet.role = "input", poet.offset = 0 : i64},
                 %w: tensor<64x32xf32> {poet.role = "param", poet.updates = 1 : i64, poet.name = "['w']"})
    -> (tensor<1x32xf32> {poet.name = "loss"}, tensor<64x32xf32>) attributes {ram = 32768 : i64} {
  %h = poet.compute "dot_relu" (%a = %x : tensor<1x64xf32>, %b = %w : tensor<64x32xf32>) -> tensor<1x32xf32>
      kernel @dot_relu
      cost #poet.cost<energy_nj = 1, time_ns = 2, workspace = 128, flops = 3>
      offsets [256] workspace_offset 64 attributes {note = "kept"} {
    %r = "test.op"(%a, %b) : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
    poet.yield %r : tensor<1x32xf32>
  }
  %p = poet.pageout %h offset 512 : tensor<1x32xf32> -> !poet.page<tensor<1x32xf32>>
  poet.free %h : tensor<1x32xf32>
  %one, %two = poet.compute "two" () -> (tensor<f32>, tensor<2xi1>) {
    %0, %1 = "test.op"() : () -> (tensor<f32>, tensor<2xi1>)
    poet.yield %0, %1 : tensor<f32>, tensor<2xi1>
  }
  %h2 = poet.pagein %p : !poet.page<tensor<1x32xf32>> -> tensor<1x32xf32>
  poet.compute "nothing" (%a = %two : tensor<2xi1>) -> () {
    poet.yield
  }
  %w2 = poet.compute "update" (%a = %one : tensor<f32>, %b = %w : tensor<64x32xf32>) -> tensor<64x32xf32> inplace [[0, 1]] {
    poet.yield %b : tensor<64x32xf32>
  }
  poet.return %h2, %w2 : tensor<1x32xf32>, tensor<64x32xf32>
}

poet.graph @split(%x: tensor<2xf32>) -> tensor<2xf32> {
  %s = poet.pageout_start %x offset 12 : tensor<2xf32> -> !poet.transfer<!poet.page<tensor<2xf32>>>
  %p = poet.wait %s : !poet.transfer<!poet.page<tensor<2xf32>>> -> !poet.page<tensor<2xf32>>
  poet.free %x : tensor<2xf32>
  %t = poet.pagein_start %p {note = "kept"} : !poet.page<tensor<2xf32>> -> !poet.transfer<tensor<2xf32>>
  %y = poet.wait %t : !poet.transfer<tensor<2xf32>> -> tensor<2xf32>
  poet.return %y : tensor<2xf32>
}

poet.graph @paged(%w: !poet.page<tensor<2xf32>> {poet.role = "param"}) {
  poet.return
}

// CHECK:       poet.graph @main(%x: tensor<1x64xf32> {poet.role = "input", poet.offset = 0 : i64}, %w: tensor<64x32xf32> {poet.role = "param", poet.updates = 1 : i64, poet.name = "['w']"}) -> (tensor<1x32xf32> {poet.name = "loss"}, tensor<64x32xf32>) attributes {ram = 32768 : i64} {
// CHECK-NEXT:    %h = poet.compute "dot_relu" (%a = %x : tensor<1x64xf32>, %b = %w : tensor<64x32xf32>) -> tensor<1x32xf32> kernel @dot_relu cost #poet.cost<energy_nj = 1, time_ns = 2, workspace = 128, flops = 3> offsets [256] workspace_offset 64 attributes {note = "kept"} {
// CHECK-NEXT:      %r = "test.op"(%a, %b) : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
// CHECK-NEXT:      poet.yield %r : tensor<1x32xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    %p = poet.pageout %h offset 512 : tensor<1x32xf32> -> !poet.page<tensor<1x32xf32>>
// CHECK-NEXT:    poet.free %h : tensor<1x32xf32>
// CHECK-NEXT:    %one, %two = poet.compute "two" () -> (tensor<f32>, tensor<2xi1>) {
// CHECK-NEXT:      %0, %1 = "test.op"() : () -> (tensor<f32>, tensor<2xi1>)
// CHECK-NEXT:      poet.yield %0, %1 : tensor<f32>, tensor<2xi1>
// CHECK-NEXT:    }
// CHECK-NEXT:    %h2 = poet.pagein %p : !poet.page<tensor<1x32xf32>> -> tensor<1x32xf32>
// CHECK-NEXT:    poet.compute "nothing" (%a = %two : tensor<2xi1>) -> () {
// CHECK-NEXT:      poet.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    %w2 = poet.compute "update" (%a = %one : tensor<f32>, %b = %w : tensor<64x32xf32>) -> tensor<64x32xf32> inplace {{\[\[}}0, 1{{\]\]}} {
// CHECK-NEXT:      poet.yield %b : tensor<64x32xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    poet.return %h2, %w2 : tensor<1x32xf32>, tensor<64x32xf32>
// CHECK-NEXT:  }
// CHECK-NEXT:  poet.graph @split(%x: tensor<2xf32>) -> tensor<2xf32> {
// CHECK-NEXT:    %s = poet.pageout_start %x offset 12 : tensor<2xf32> -> !poet.transfer<!poet.page<tensor<2xf32>>>
// CHECK-NEXT:    %p = poet.wait %s : !poet.transfer<!poet.page<tensor<2xf32>>> -> !poet.page<tensor<2xf32>>
// CHECK-NEXT:    poet.free %x : tensor<2xf32>
// CHECK-NEXT:    %t = poet.pagein_start %p {note = "kept"} : !poet.page<tensor<2xf32>> -> !poet.transfer<tensor<2xf32>>
// CHECK-NEXT:    %y = poet.wait %t : !poet.transfer<tensor<2xf32>> -> tensor<2xf32>
// CHECK-NEXT:    poet.return %y : tensor<2xf32>
// CHECK-NEXT:  }
// CHECK-NEXT:  poet.graph @paged(%w: !poet.page<tensor<2xf32>> {poet.role = "param"}) {
// CHECK-NEXT:    poet.return
// CHECK-NEXT:  }

// GENERIC:       "poet.graph"() <{sym_name = "main", function_type = (tensor<1x64xf32>, tensor<64x32xf32>) -> (tensor<1x32xf32>, tensor<64x32xf32>), arg_attrs = [{poet.role = "input", poet.offset = 0 : i64}, {poet.role = "param", poet.updates = 1 : i64, poet.name = "['w']"}], res_attrs = [{poet.name = "loss"}, {}]}> ({
// GENERIC-NEXT:  ^bb0(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>):
// GENERIC-NEXT:    %h = "poet.compute"(%x, %w) <{label = "dot_relu", kernel = @dot_relu, cost = #poet.cost<energy_nj = 1, time_ns = 2, workspace = 128, flops = 3>, offsets = array<i64: 256>, workspace_offset = 64 : i64}> ({
// GENERIC-NEXT:    ^bb0(%a: tensor<1x64xf32>, %b: tensor<64x32xf32>):
// GENERIC:         %p = "poet.pageout"(%h) <{offset = 512 : i64}> : (tensor<1x32xf32>) -> !poet.page<tensor<1x32xf32>>
// GENERIC-NEXT:    "poet.free"(%h) : (tensor<1x32xf32>) -> ()
// GENERIC:         %h2 = "poet.pagein"(%p) : (!poet.page<tensor<1x32xf32>>) -> tensor<1x32xf32>
// GENERIC:         %w2 = "poet.compute"(%one, %w) <{label = "update", inplace = [array<i64: 0, 1>]}> ({
// GENERIC:         %s = "poet.pageout_start"(%x) <{offset = 12 : i64}> : (tensor<2xf32>) -> !poet.transfer<!poet.page<tensor<2xf32>>>
// GENERIC-NEXT:    %p = "poet.wait"(%s) : (!poet.transfer<!poet.page<tensor<2xf32>>>) -> !poet.page<tensor<2xf32>>
