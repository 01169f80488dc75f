// RUN: xdsl-opt %s -t c | filecheck %s --match-full-lines --strict-whitespace

func.func @floats(%a: f32, %b: f32, %c: f32) -> f32 {
  %inf = arith.constant 0x7F800000 : f32
  %low = arith.constant 0xFF800000 : f32
  %tenth = arith.constant 0.1 : f32
  %tiny = arith.constant 1.0e-45 : f32
  %zero = arith.constant 0.0 : f32
  %negative_zero = arith.constant -0.0 : f32
  %sum = arith.addf %b, %c : f32
  %difference = arith.subf %a, %sum : f32
  %quotient = arith.divf %difference, %sum : f32
  %negated = arith.negf %quotient : f32
  %negated2 = arith.negf %negated : f32
  %relu = arith.maximumf %negated2, %zero : f32
  %upper = arith.minimumf %inf, %relu : f32
  %clipped = arith.maximumf %upper, %negative_zero : f32
  %max = arith.maximumf %clipped, %low : f32
  %scaled = arith.mulf %max, %tenth : f32
  %result = arith.addf %scaled, %tiny : f32
  func.return %result : f32
}

//      CHECK:float floats(float a, float b, float c)
// CHECK-NEXT:{
// CHECK-NEXT:    const float sum = b + c;
// CHECK-NEXT:    const float upper =
// CHECK-NEXT:        poetc_at_most(poetc_at_least(-(-((a - sum) / sum)), 0.0f), poetc_float(0x7f800000u));
// CHECK-NEXT:    const float max = poetc_at_least(poetc_maximum(upper, -0.0f), poetc_float(0xff800000u));
// CHECK-NEXT:    return max * 0.1f + 0x1.0000000000000p-149f;
// CHECK-NEXT:}

func.func @integers(%a: i32, %b: i32, %x: f32) -> i32 {
  %min = arith.constant -2147483648 : i32
  %three = arith.constant 3 : i32
  %sum = arith.addi %a, %b : i32
  %product = arith.muli %sum, %three : i32
  %bits = arith.bitcast %x : f32 to i32
  %masked = arith.andi %bits, %product : i32
  %shifted = arith.shli %masked, %three : i32
  %whole = arith.fptosi %x : f32 to i32
  %less = arith.cmpi slt, %shifted, %whole : i32
  %unsigned = arith.cmpi ult, %a, %min : i32
  %both = arith.andi %less, %unsigned : i1
  %either = arith.xori %both, %less : i1
  %flag = arith.extui %either : i1 to i32
  func.return %flag : i32
}

//      CHECK:    const int32_t shifted = poetc_shift_left(poetc_as_int(x) & poetc_mul(poetc_add(a, b), 3), 3);
// CHECK-NEXT:    const bool less = shifted < poetc_to_int(x);
// CHECK-NEXT:    return (less && (uint32_t)a < (uint32_t)INT32_MIN) != less ? 1 : 0;

func.func @comparisons(%a: f32, %b: f32) -> f32 {
  %one = arith.constant 1.0 : f32
  %nan = arith.cmpf uno, %a, %b : f32
  %ule = arith.cmpf ule, %a, %b : f32
  %ne = arith.cmpf one, %a, %b : f32
  %x = arith.select %nan, %a, %b : f32
  %y = arith.select %ule, %x, %one : f32
  %z = arith.select %ne, %y, %x : f32
  %e = math.exp %z : f32
  func.return %e : f32
}

//      CHECK:    const float x = a != a || b != b ? a : b;
// CHECK-NEXT:    return poetc_expf(a < b || a > b ? (!(a > b) ? x : 1.0f) : x);
