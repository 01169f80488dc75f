// Exponential less one and logarithm of one more, accurate near zero: within 2 ulp.

// log(1 + x), as the logarithm but that 1 + x is rounded: what that loses is added.
func.func @poetc_log1pf(%x: f32) -> f32 {
  // 1 + x = 2^k * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); f = x without rounding where k = 0.
  %infinity = arith.constant 0x7F800000 : f32
  %inside = arith.cmpf olt, %x, %infinity : f32
  %one = arith.constant 1.0 : f32
  %x_in = arith.select %inside, %x, %one : f32
  %u = arith.addf %one, %x_in : f32
  %bits = arith.bitcast %u : f32 to i32
  %k = arith.constant 4913933 : i32
  %moved = arith.addi %bits, %k : i32
  %i23 = arith.constant 23 : i32
  %t = arith.shrsi %moved, %i23 : i32
  %bias = arith.constant 127 : i32
  %k_2 = arith.subi %t, %bias : i32
  %mantissa_mask = arith.constant 8388607 : i32
  %t_2 = arith.andi %moved, %mantissa_mask : i32
  %sqrt_half_bits = arith.constant 1060439283 : i32
  %t_3 = arith.addi %t_2, %sqrt_half_bits : i32
  %m = arith.bitcast %t_3 : i32 to f32
  %i0 = arith.constant 0 : i32
  %exact = arith.cmpi eq, %k_2, %i0 : i32
  %t_4 = arith.subf %m, %one : f32
  %f = arith.select %exact, %x_in, %t_4 : f32
  %t_5 = arith.subf %u, %one : f32
  %lost_small = arith.subf %x_in, %t_5 : f32
  %t_6 = arith.subf %u, %x_in : f32
  %lost_large = arith.subf %one, %t_6 : f32
  %b = arith.cmpf ogt, %x_in, %one : f32
  %lost = arith.select %b, %lost_large, %lost_small : f32
  %lost_part = arith.divf %lost, %u : f32
  %zero = arith.constant 0.0 : f32
  %correction = arith.select %exact, %zero, %lost_part : f32
  %kf = arith.sitofp %k_2 : i32 to f32
  %two = arith.constant 2.0 : f32
  %t_7 = arith.addf %f, %two : f32
  %s = arith.divf %f, %t_7 : f32
  %z = arith.mulf %s, %s : f32
  %c = arith.constant 0.29871073 : f32
  %c_2 = arith.constant 0.39977577 : f32
  %c_3 = arith.constant 0.66666776 : f32
  %p = arith.mulf %c, %z : f32
  %p_2 = arith.addf %p, %c_2 : f32
  %p_3 = arith.mulf %p_2, %z : f32
  %p_4 = arith.addf %p_3, %c_3 : f32
  %pz = arith.mulf %p_4, %z : f32
  %half = arith.constant 0.5 : f32
  %t_8 = arith.mulf %half, %f : f32
  %half_square = arith.mulf %t_8, %f : f32
  %t_9 = arith.addf %half_square, %pz : f32
  %s_series = arith.mulf %s, %t_9 : f32
  %c_4 = arith.constant 1.4286068e-06 : f32
  %t_10 = arith.mulf %kf, %c_4 : f32
  %t_11 = arith.addf %t_10, %correction : f32
  %low = arith.addf %s_series, %t_11 : f32
  %t_12 = arith.subf %half_square, %low : f32
  %fraction = arith.subf %f, %t_12 : f32
  %c_5 = arith.constant 0.69314575 : f32
  %t_13 = arith.mulf %kf, %c_5 : f32
  %value = arith.addf %t_13, %fraction : f32
  %or_exact = arith.select %exact, %fraction, %value : f32
  // log1p(-1) = -inf, log1p(x < -1) = NaN, log1p(inf) = inf, log1p(NaN) = NaN
  %minus_one = arith.constant -1.0 : f32
  %b_2 = arith.cmpf oeq, %x, %minus_one : f32
  %minus_infinity = arith.constant 0xFF800000 : f32
  %or_pole = arith.select %b_2, %minus_infinity, %or_exact : f32
  %b_3 = arith.cmpf olt, %x, %minus_one : f32
  %not_a_number = arith.constant 0x7FC00000 : f32
  %or_negative = arith.select %b_3, %not_a_number, %or_pole : f32
  %result = arith.select %inside, %or_negative, %x : f32
  func.return %result : f32
}

// exp(x) - 1 = 2^n * (exp(r) - 1) + (2^n - 1), where x = n * ln(2) + r as for exp; from 20 on the
// one does not matter.
func.func @poetc_expm1f(%x: f32) -> f32 {
  %c = arith.constant -20.0 : f32
  %b = arith.cmpf olt, %x, %c : f32
  %x_low = arith.select %b, %c, %x : f32
  %c_2 = arith.constant 20.0 : f32
  %b_2 = arith.cmpf ogt, %x_low, %c_2 : f32
  %x_in = arith.select %b_2, %c_2, %x_low : f32
  %c_3 = arith.constant 1.442695 : f32
  %t = arith.mulf %x_in, %c_3 : f32
  %c_4 = arith.constant 12582912.0 : f32
  %shifted = arith.addf %t, %c_4 : f32
  %nf = arith.subf %shifted, %c_4 : f32
  %bits = arith.bitcast %shifted : f32 to i32
  %k = arith.constant 1262485504 : i32
  %n = arith.subi %bits, %k : i32
  %c_5 = arith.constant 0.69314575 : f32
  %t_2 = arith.mulf %nf, %c_5 : f32
  %t_3 = arith.subf %x_in, %t_2 : f32
  %c_6 = arith.constant 1.4286068e-06 : f32
  %t_4 = arith.mulf %nf, %c_6 : f32
  %r = arith.subf %t_3, %t_4 : f32
  %c_7 = arith.constant 0.0013820728 : f32
  %c_8 = arith.constant 0.008368677 : f32
  %c_9 = arith.constant 0.041668266 : f32
  %c_10 = arith.constant 0.16666521 : f32
  %c_11 = arith.constant 0.49999994 : f32
  %p = arith.mulf %c_7, %r : f32
  %p_2 = arith.addf %p, %c_8 : f32
  %p_3 = arith.mulf %p_2, %r : f32
  %p_4 = arith.addf %p_3, %c_9 : f32
  %p_5 = arith.mulf %p_4, %r : f32
  %p_6 = arith.addf %p_5, %c_10 : f32
  %p_7 = arith.mulf %p_6, %r : f32
  %q = arith.addf %p_7, %c_11 : f32
  %t_5 = arith.mulf %r, %r : f32
  %square_q = arith.mulf %t_5, %q : f32
  %less_one = arith.addf %r, %square_q : f32
  %bias = arith.constant 127 : i32
  %t_6 = arith.addi %n, %bias : i32
  %i23 = arith.constant 23 : i32
  %t_7 = arith.shli %t_6, %i23 : i32
  %two_n = arith.bitcast %t_7 : i32 to f32
  %scaled = arith.mulf %less_one, %two_n : f32
  %one = arith.constant 1.0 : f32
  %t_8 = arith.subf %two_n, %one : f32
  %near = arith.addf %scaled, %t_8 : f32
  %far = func.call @poetc_expf(%x) : (f32) -> f32
  %b_3 = arith.cmpf ogt, %x, %c_2 : f32
  %value = arith.select %b_3, %far, %near : f32
  // The sign is that of x, of zeros too.
  %bits_2 = arith.bitcast %x : f32 to i32
  %sign_mask = arith.constant -2147483648 : i32
  %sign = arith.andi %bits_2, %sign_mask : i32
  %bits_3 = arith.bitcast %value : f32 to i32
  %t_9 = arith.ori %bits_3, %sign : i32
  %signed = arith.bitcast %t_9 : i32 to f32
  %b_4 = arith.cmpf oeq, %x, %x : f32
  %result = arith.select %b_4, %signed, %x : f32
  func.return %result : f32
}
