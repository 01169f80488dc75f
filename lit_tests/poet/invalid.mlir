// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

// CHECK: poet.graph @g: argument 0 must be a tensor of static shape, got f32
"poet.graph"() <{sym_name = "g", function_type = (f32) -> ()}> ({
^bb0(%x: f32):
  "poet.return"() : () -> ()
}) : () -> ()

// -----

// CHECK: poet.graph @g: block arguments must have the types of its inputs
"poet.graph"() <{sym_name = "g", function_type = (tensor<f32>) -> ()}> ({
^bb0(%x: tensor<2xf32>):
  "poet.return"() : () -> ()
}) : () -> ()

// -----

// CHECK: poet.graph @g: argument 0: role must be one of "input", "param", "frozen", got "weight"
poet.graph @g(%x: tensor<f32> {poet.role = "weight"}) {
  poet.return
}

// -----

// CHECK: poet.graph @g: argument 0: an input has no poet.updates
poet.graph @g(%x: tensor<f32> {poet.updates = 0 : i64}) -> tensor<f32> {
  poet.return %x : tensor<f32>
}

// -----

// CHECK: poet.graph @g: argument 0 updates result 1, the graph has 1
poet.graph @g(%x: tensor<f32> {poet.role = "param", poet.updates = 1 : i64}) -> tensor<f32> {
  poet.return %x : tensor<f32>
}

// -----

// CHECK: poet.graph @g: argument 1 updates result 0, which argument 0 updates
poet.graph @g(%x: tensor<f32> {poet.role = "param", poet.updates = 0 : i64},
              %y: tensor<f32> {poet.role = "param", poet.updates = 0 : i64}) -> tensor<f32> {
  poet.return %x : tensor<f32>
}

// -----

// CHECK: poet.graph @g: argument 0 of type tensor<2xf32> updates result 0 of type tensor<f32>
poet.graph @g(%x: tensor<2xf32> {poet.role = "param", poet.updates = 0 : i64}, %y: tensor<f32>) -> tensor<f32> {
  poet.return %y : tensor<f32>
}

// -----

// CHECK: poet.graph @g: test.op is not allowed directly in a graph
poet.graph @g() {
  "test.op"() : () -> ()
  poet.return
}

// -----

// CHECK: poet.return of (tensor<2xf32>) in a graph with results (tensor<f32>)
poet.graph @g(%x: tensor<2xf32>) -> tensor<f32> {
  poet.return %x : tensor<2xf32>
}

// -----

// CHECK: poet.compute "c": block arguments (tensor<f32>) must have the types of the operands (tensor<2xf32>)
poet.graph @g(%x: tensor<2xf32>) {
  "poet.compute"(%x) <{label = "c"}> ({
  ^bb0(%a: tensor<f32>):
    "poet.yield"() : () -> ()
  }) : (tensor<2xf32>) -> ()
  poet.return
}

// -----

// CHECK: poet.compute "c" yields (tensor<2xf32>) but has results (tensor<f32>)
poet.graph @g(%x: tensor<2xf32>) {
  %y = poet.compute "c" (%a = %x : tensor<2xf32>) -> tensor<f32> {
    poet.yield %a : tensor<2xf32>
  }
  poet.return
}

// -----

// CHECK: Operation using value defined out of its IsolatedFromAbove parent
poet.graph @g(%x: tensor<2xf32>) {
  %y = poet.compute "c" () -> tensor<2xf32> {
    poet.yield %x : tensor<2xf32>
  }
  poet.return
}

// -----

// CHECK: poet.compute "c": inplace [1, 0] out of range, there are 1 results and 1 operands
poet.graph @g(%x: tensor<2xf32>) {
  %y = poet.compute "c" (%a = %x : tensor<2xf32>) -> tensor<2xf32> inplace [[1, 0]] {
    poet.yield %a : tensor<2xf32>
  }
  poet.return
}

// -----

// CHECK: poet.compute "c": inplace [0, 0] joins types tensor<1xf32> and tensor<2xf32>
poet.graph @g(%x: tensor<2xf32>) {
  %y = poet.compute "c" (%a = %x : tensor<2xf32>) -> tensor<1xf32> inplace [[0, 0]] {
    %r = "test.op"(%a) : (tensor<2xf32>) -> tensor<1xf32>
    poet.yield %r : tensor<1xf32>
  }
  poet.return
}

// -----

// CHECK: poet.compute "c": a result is in place of two operands
poet.graph @g(%x: tensor<f32>, %y: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>, %b = %y : tensor<f32>) -> tensor<f32> inplace [[0, 0], [0, 1]] {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// One value under two names is still one buffer.
// CHECK: poet.compute "c": two results are in place of one operand
poet.graph @g(%x: tensor<f32>) {
  %y, %z = poet.compute "c" (%a = %x : tensor<f32>, %b = %x : tensor<f32>) -> (tensor<f32>, tensor<f32>) inplace [[0, 0], [1, 1]] {
    poet.yield %a, %b : tensor<f32>, tensor<f32>
  }
  poet.return
}

// -----

// CHECK: poet.compute "c" has 1 results but 2 offsets
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> offsets [0, 4] {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK: poet.compute "c": no function @missing in the module
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> kernel @missing {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK: poet.compute "c": kernel @k takes 1 buffers, 2 needed
func.func private @k(memref<f32>) -> ()
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> kernel @k {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK: flops of a cost must not be negative, got -1
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = -1> {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK: slices are moved for 3 ns of a cost that has 1 ns
poet.graph @g(%x: tensor<f32>) {
  %z = poet.compute "c" (%a = %x : tensor<f32>) -> tensor<f32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0, read_ns = 2, write_ns = 1> {
    poet.yield %a : tensor<f32>
  }
  poet.return
}

// -----

// CHECK: poet.pagein between a tensor of type tensor<2xf32> and a page !poet.page<tensor<f32>>
poet.graph @g(%p: !poet.page<tensor<f32>>) {
  %z = poet.pagein %p : !poet.page<tensor<f32>> -> tensor<2xf32>
  poet.return
}

// -----

// CHECK: the content of a page must be a tensor of static shape, got tensor<?xf32>
poet.graph @g(%p: !poet.page<tensor<?xf32>>) {
  poet.return
}

// -----

// CHECK: 'poet.free' expects parent op 'poet.graph'
func.func @f(%x: tensor<f32>) {
  poet.free %x : tensor<f32>
  func.return
}

// -----

// CHECK: poet.pagein_start must be waited for once, by a poet.wait
poet.graph @g(%x: tensor<2xf32>, %p: !poet.page<tensor<2xf32>>) {
  %t = poet.pagein_start %p : !poet.page<tensor<2xf32>> -> !poet.transfer<tensor<2xf32>>
  poet.return
}

// -----

// CHECK: poet.pageout_start must be waited for once, by a poet.wait
poet.graph @g(%x: tensor<2xf32>, %p: !poet.page<tensor<2xf32>>) {
  %t = poet.pageout_start %x : tensor<2xf32> -> !poet.transfer<!poet.page<tensor<2xf32>>>
  %q = poet.wait %t : !poet.transfer<!poet.page<tensor<2xf32>>> -> !poet.page<tensor<2xf32>>
  %r = poet.wait %t : !poet.transfer<!poet.page<tensor<2xf32>>> -> !poet.page<tensor<2xf32>>
  poet.return
}

// -----

// CHECK: poet.pageout_start between a tensor of type tensor<2xf32> and a page !poet.page<tensor<f32>>
poet.graph @g(%x: tensor<2xf32>, %p: !poet.page<tensor<2xf32>>) {
  %t = poet.pageout_start %x : tensor<2xf32> -> !poet.transfer<!poet.page<tensor<f32>>>
  %q = poet.wait %t : !poet.transfer<!poet.page<tensor<f32>>> -> !poet.page<tensor<f32>>
  poet.return
}

// -----

// CHECK: poet.pagein_start between a tensor of type !poet.page<tensor<2xf32>> and a page !poet.page<tensor<2xf32>>
poet.graph @g(%x: tensor<2xf32>, %p: !poet.page<tensor<2xf32>>) {
  %t = poet.pagein_start %p : !poet.page<tensor<2xf32>> -> !poet.transfer<!poet.page<tensor<2xf32>>>
  %q = poet.wait %t : !poet.transfer<!poet.page<tensor<2xf32>>> -> !poet.page<tensor<2xf32>>
  poet.return
}

// -----

// CHECK: poet.pagein_start between a tensor of type !poet.page<tensor<2xf32>> and a page !poet.page<tensor<2xf32>>
poet.graph @g(%x: tensor<2xf32>, %p: !poet.page<tensor<2xf32>>) {
  %t = poet.pagein_start %p : !poet.page<tensor<2xf32>> -> !poet.transfer<tensor<2xf32>>
  %q = poet.wait %t : !poet.transfer<tensor<2xf32>> -> !poet.page<tensor<2xf32>>
  poet.return
}

// -----

// CHECK: poet.wait for a transfer of tensor<f32> has a result of type tensor<2xf32>
poet.graph @g(%p: !poet.page<tensor<2xf32>>) {
  %t = poet.pagein_start %p : !poet.page<tensor<2xf32>> -> !poet.transfer<tensor<f32>>
  %q = poet.wait %t : !poet.transfer<tensor<f32>> -> tensor<2xf32>
  poet.return
}
