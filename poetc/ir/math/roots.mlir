// Cube root and remainder.

// t - t (t^3 - x) / (2 t^3 + x), three times as many correct digits of the cube root of x.
func.func private @poetc_halley(%t: f32, %x: f32) -> f32 {
  %square = arith.mulf %t, %t : f32
  %cube = arith.mulf %square, %t : f32
  %excess = arith.subf %cube, %x : f32
  %twice = arith.addf %cube, %cube : f32
  %sum = arith.addf %twice, %x : f32
  %ratio = arith.divf %excess, %sum : f32
  %step = arith.mulf %t, %ratio : f32
  %result = arith.subf %t, %step : f32
  func.return %result : f32
}

// The cube root: a third of the exponent for a start, and Halley's iteration.
func.func @poetc_cbrtf(%x: f32) -> f32 {
  %abs_mask = arith.constant 2147483647 : i32
  %bits = arith.bitcast %x : f32 to i32
  %a_bits = arith.andi %bits, %abs_mask : i32
  %sign = arith.subi %bits, %a_bits : i32
  %a = arith.bitcast %a_bits : i32 to f32
  // Numbers below 1 are scaled up by 2^24, so that none is denormal, and their roots down by 2^8;
  // the others the other way round, so that sums do not overflow.
  %one = arith.constant 1.0 : f32
  %up24 = arith.constant 16777216.0 : f32
  %down24 = arith.constant 5.9604645e-08 : f32
  %up8 = arith.constant 256.0 : f32
  %down8 = arith.constant 0.00390625 : f32
  %below = arith.cmpf olt, %a, %one : f32
  %factor = arith.select %below, %up24, %down24 : f32
  %scale = arith.select %below, %down8, %up8 : f32
  %a_in = arith.mulf %a, %factor : f32
  // A third of the bits, plus two thirds of the bits of 1: within 4% of the root.
  %in_bits = arith.bitcast %a_in : f32 to i32
  %number = arith.sitofp %in_bits : i32 to f32
  %third = arith.constant 0.33333334 : f32
  %third_bits = arith.mulf %number, %third : f32
  %third_number = arith.fptosi %third_bits : f32 to i32
  %offset = arith.constant 709952852 : i32
  %start_bits = arith.addi %third_number, %offset : i32
  %t0 = arith.bitcast %start_bits : i32 to f32
  %t1 = func.call @poetc_halley(%t0, %a_in) : (f32, f32) -> f32
  %t2 = func.call @poetc_halley(%t1, %a_in) : (f32, f32) -> f32
  %size = arith.mulf %t2, %scale : f32
  %size_bits = arith.bitcast %size : f32 to i32
  %signed_bits = arith.ori %size_bits, %sign : i32
  %value = arith.bitcast %signed_bits : i32 to f32
  // The root of 0, infinity and NaN is the operand.
  %zero = arith.constant 0.0 : f32
  %infinity = arith.constant 0x7F800000 : f32
  %is_zero = arith.cmpf oeq, %a, %zero : f32
  %not_finite = arith.cmpf uge, %a, %infinity : f32
  %or_zero = arith.select %is_zero, %x, %value : f32
  %result = arith.select %not_finite, %x, %or_zero : f32
  func.return %result : f32
}

// r * 2^left modulo y, for 0 <= r < y < 2^24 and left <= 56: seven bits at a time.
func.func private @poetc_remainder_bits(%r: i32, %y: i32, %left: i32) -> i32 {
  %i7 = arith.constant 7 : i32
  %few0 = arith.cmpi slt, %left, %i7 : i32
  %s0 = arith.select %few0, %left, %i7 : i32
  %up0 = arith.shli %r, %s0 : i32
  %r1 = arith.remsi %up0, %y : i32
  %left1 = arith.subi %left, %s0 : i32
  %few1 = arith.cmpi slt, %left1, %i7 : i32
  %s1 = arith.select %few1, %left1, %i7 : i32
  %up1 = arith.shli %r1, %s1 : i32
  %r2 = arith.remsi %up1, %y : i32
  %left2 = arith.subi %left1, %s1 : i32
  %few2 = arith.cmpi slt, %left2, %i7 : i32
  %s2 = arith.select %few2, %left2, %i7 : i32
  %up2 = arith.shli %r2, %s2 : i32
  %r3 = arith.remsi %up2, %y : i32
  %left3 = arith.subi %left2, %s2 : i32
  %few3 = arith.cmpi slt, %left3, %i7 : i32
  %s3 = arith.select %few3, %left3, %i7 : i32
  %up3 = arith.shli %r3, %s3 : i32
  %r4 = arith.remsi %up3, %y : i32
  %left4 = arith.subi %left3, %s3 : i32
  %few4 = arith.cmpi slt, %left4, %i7 : i32
  %s4 = arith.select %few4, %left4, %i7 : i32
  %up4 = arith.shli %r4, %s4 : i32
  %r5 = arith.remsi %up4, %y : i32
  %left5 = arith.subi %left4, %s4 : i32
  %few5 = arith.cmpi slt, %left5, %i7 : i32
  %s5 = arith.select %few5, %left5, %i7 : i32
  %up5 = arith.shli %r5, %s5 : i32
  %r6 = arith.remsi %up5, %y : i32
  %left6 = arith.subi %left5, %s5 : i32
  %few6 = arith.cmpi slt, %left6, %i7 : i32
  %s6 = arith.select %few6, %left6, %i7 : i32
  %up6 = arith.shli %r6, %s6 : i32
  %r7 = arith.remsi %up6, %y : i32
  %left7 = arith.subi %left6, %s6 : i32
  %few7 = arith.cmpi slt, %left7, %i7 : i32
  %s7 = arith.select %few7, %left7, %i7 : i32
  %up7 = arith.shli %r7, %s7 : i32
  %r8 = arith.remsi %up7, %y : i32
  %left8 = arith.subi %left7, %s7 : i32
  func.return %r8 : i32
}

// x - y n for the integer n next to x / y towards zero: exact, with the sign of x.
func.func @poetc_remf(%x: f32, %y: f32) -> f32 attributes {cycles = 400.0 : f32} {
  %abs_mask = arith.constant 2147483647 : i32
  %mantissa_mask = arith.constant 8388607 : i32
  %implicit_bit = arith.constant 8388608 : i32
  %i0 = arith.constant 0 : i32
  %i1 = arith.constant 1 : i32
  %i23 = arith.constant 23 : i32
  %i56 = arith.constant 56 : i32
  // A number is mantissa * 2^(exponent - 150) with exponent >= 1.
  %x_bits = arith.bitcast %x : f32 to i32
  %y_bits = arith.bitcast %y : f32 to i32
  %ax = arith.andi %x_bits, %abs_mask : i32
  %ay = arith.andi %y_bits, %abs_mask : i32
  %sign = arith.subi %x_bits, %ax : i32
  %x_field = arith.shrsi %ax, %i23 : i32
  %y_field = arith.shrsi %ay, %i23 : i32
  %x_tiny = arith.cmpi eq, %x_field, %i0 : i32
  %y_tiny = arith.cmpi eq, %y_field, %i0 : i32
  %x_exponent = arith.select %x_tiny, %i1, %x_field : i32
  %y_exponent = arith.select %y_tiny, %i1, %y_field : i32
  %x_low = arith.andi %ax, %mantissa_mask : i32
  %y_low = arith.andi %ay, %mantissa_mask : i32
  %x_full = arith.ori %x_low, %implicit_bit : i32
  %y_full = arith.ori %y_low, %implicit_bit : i32
  %x_number = arith.select %x_tiny, %x_low, %x_full : i32
  %y_any = arith.select %y_tiny, %y_low, %y_full : i32
  %y_zero = arith.cmpi eq, %ay, %i0 : i32
  %y_number = arith.select %y_zero, %i1, %y_any : i32
  %r0 = arith.remsi %x_number, %y_number : i32
  %difference = arith.subi %x_exponent, %y_exponent : i32
  %smaller = arith.cmpi slt, %difference, %i0 : i32
  %left0 = arith.select %smaller, %i0, %difference : i32
  %r1 = func.call @poetc_remainder_bits(%r0, %y_number, %left0) : (i32, i32, i32) -> i32
  %rest1 = arith.subi %left0, %i56 : i32
  %none1 = arith.cmpi slt, %rest1, %i0 : i32
  %left1 = arith.select %none1, %i0, %rest1 : i32
  %r2 = func.call @poetc_remainder_bits(%r1, %y_number, %left1) : (i32, i32, i32) -> i32
  %rest2 = arith.subi %left1, %i56 : i32
  %none2 = arith.cmpi slt, %rest2, %i0 : i32
  %left2 = arith.select %none2, %i0, %rest2 : i32
  %r3 = func.call @poetc_remainder_bits(%r2, %y_number, %left2) : (i32, i32, i32) -> i32
  %rest3 = arith.subi %left2, %i56 : i32
  %none3 = arith.cmpi slt, %rest3, %i0 : i32
  %left3 = arith.select %none3, %i0, %rest3 : i32
  %r4 = func.call @poetc_remainder_bits(%r3, %y_number, %left3) : (i32, i32, i32) -> i32
  %rest4 = arith.subi %left3, %i56 : i32
  %none4 = arith.cmpi slt, %rest4, %i0 : i32
  %left4 = arith.select %none4, %i0, %rest4 : i32
  %r5 = func.call @poetc_remainder_bits(%r4, %y_number, %left4) : (i32, i32, i32) -> i32
  // r * 2^(y_exponent - 150) in two exact steps.
  %r = arith.sitofp %r5 : i32 to f32
  %i75 = arith.constant 75 : i32
  %i127 = arith.constant 127 : i32
  %e_all = arith.subi %y_exponent, %i75 : i32
  %e_high = arith.subi %e_all, %i75 : i32
  %e_first = arith.shrsi %e_high, %i1 : i32
  %e_second = arith.subi %e_high, %e_first : i32
  %f_first = arith.addi %e_first, %i127 : i32
  %f_second = arith.addi %e_second, %i127 : i32
  %b_first = arith.shli %f_first, %i23 : i32
  %b_second = arith.shli %f_second, %i23 : i32
  %two_first = arith.bitcast %b_first : i32 to f32
  %two_second = arith.bitcast %b_second : i32 to f32
  %r_first = arith.mulf %r, %two_first : f32
  %size = arith.mulf %r_first, %two_second : f32
  %size_bits = arith.bitcast %size : f32 to i32
  %signed_bits = arith.ori %size_bits, %sign : i32
  %value = arith.bitcast %signed_bits : i32 to f32
  %or_x = arith.select %smaller, %x, %value : f32
  // Nothing is left by 0, nor of infinity.
  %infinity = arith.constant 2139095040 : i32
  %not_a_number = arith.constant 0x7FC00000 : f32
  %x_wrong = arith.cmpi sge, %ax, %infinity : i32
  %y_nan = arith.cmpi sgt, %ay, %infinity : i32
  %y_wrong = arith.ori %y_nan, %y_zero : i1
  %wrong = arith.ori %x_wrong, %y_wrong : i1
  %result = arith.select %wrong, %not_a_number, %or_x : f32
  func.return %result : f32
}
