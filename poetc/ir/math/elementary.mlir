// The mathematical functions of every generated program, once for all targets.
//
// The C that a program calls is printed from these functions, and the interpreter evaluates them on
// arrays (ir/mathlib.py), so all of them return the same bits. They use only float32 + - * /,
// comparisons and integer arithmetic on the bits: straight-line, no fused multiply-add, no float64,
// no conversion out of range. Rounding is to nearest even. Special cases are those of C99's F.9.
//
// A function is found by its name: poetc_expf is math.exp, poetc_powf is math.powf. Its attributes:
// `unlike_fused`, arguments for which other bits come out if a compiler fuses multiplications and
// additions (none where the result is the same anyway); `cycles`, what a vector of calls takes on a
// processor that starts two operations in each (where missing, half the number of operations).
//
// Polynomials are minimax fits (Lawson's iteration in float64, coefficients rounded to float32 one
// after the other, lowest order first, the others refitted); the comment on each gives the error of
// the fit relative to the function. Errors of the whole functions, over all float32: exp < 1 ulp,
// log < 1 ulp, tanh < 1.5 ulp, sqrt exactly rounded, rsqrt < 1.5 ulp, pow < 1.2 ulp.

// exp(r) * 2^n for |r| <= ln(2)/2 (a little more is harmless) and -252 <= n <= 254.
// The factor 2^n is applied in two steps, so that a denormal result is rounded once.
func.func private @poetc_exp_scaled(%r: f32, %n: i32) -> f32 {
  // exp(r) = 1 + r + r^2 * q(r), q of degree 4, error 2^-28
  %c6 = arith.constant 0.0013820728 : f32
  %c5 = arith.constant 0.008368677 : f32
  %c4 = arith.constant 0.041668266 : f32
  %c3 = arith.constant 0.16666521 : f32
  %c2 = arith.constant 0.49999994 : f32
  %one = arith.constant 1.0 : f32
  %q6 = arith.mulf %c6, %r : f32
  %q5 = arith.addf %q6, %c5 : f32
  %q5r = arith.mulf %q5, %r : f32
  %q4 = arith.addf %q5r, %c4 : f32
  %q4r = arith.mulf %q4, %r : f32
  %q3 = arith.addf %q4r, %c3 : f32
  %q3r = arith.mulf %q3, %r : f32
  %q = arith.addf %q3r, %c2 : f32
  %square = arith.mulf %r, %r : f32
  %square_q = arith.mulf %square, %q : f32
  %less_one = arith.addf %r, %square_q : f32
  %exp_r = arith.addf %one, %less_one : f32
  // 2^n = 2^(n >> 1) * 2^(n - (n >> 1))
  %bias = arith.constant 127 : i32
  %mantissa_bits = arith.constant 23 : i32
  %i1 = arith.constant 1 : i32
  %n_low = arith.shrsi %n, %i1 : i32
  %n_high = arith.subi %n, %n_low : i32
  %e_low = arith.addi %n_low, %bias : i32
  %e_high = arith.addi %n_high, %bias : i32
  %b_low = arith.shli %e_low, %mantissa_bits : i32
  %b_high = arith.shli %e_high, %mantissa_bits : i32
  %two_low = arith.bitcast %b_low : i32 to f32
  %two_high = arith.bitcast %b_high : i32 to f32
  %scaled = arith.mulf %exp_r, %two_low : f32
  %result = arith.mulf %scaled, %two_high : f32
  func.return %result : f32
}

func.func @poetc_expf(%x: f32) -> f32
    attributes {cycles = 15.0 : f32, unlike_fused = [8.625 : f32]} {
  // Beyond these bounds the result is infinity or zero anyway.
  %min = arith.constant -104.0 : f32
  %max = arith.constant 89.0 : f32
  %below = arith.cmpf olt, %x, %min : f32
  %above = arith.cmpf ogt, %x, %max : f32
  %x_low = arith.select %below, %min, %x : f32
  %x_in = arith.select %above, %max, %x_low : f32
  // x = n * ln(2) + r. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  %log2e = arith.constant 1.442695 : f32
  %shifter = arith.constant 12582912.0 : f32
  %x_log2 = arith.mulf %x_in, %log2e : f32
  %shifted = arith.addf %x_log2, %shifter : f32
  %nf = arith.subf %shifted, %shifter : f32
  %shifted_bits = arith.bitcast %shifted : f32 to i32
  %shifter_bits = arith.constant 1262485504 : i32
  %n = arith.subi %shifted_bits, %shifter_bits : i32
  // ln(2) in two parts; the first has 16 bits, so its product with n is exact.
  %ln2_high = arith.constant 0.69314575 : f32
  %ln2_low = arith.constant 1.4286068e-06 : f32
  %n_high = arith.mulf %nf, %ln2_high : f32
  %n_low = arith.mulf %nf, %ln2_low : f32
  %r_high = arith.subf %x_in, %n_high : f32
  %r = arith.subf %r_high, %n_low : f32
  %value = func.call @poetc_exp_scaled(%r, %n) : (f32, i32) -> f32
  %nan = arith.cmpf uno, %x, %x : f32
  %result = arith.select %nan, %x, %value : f32
  func.return %result : f32
}

func.func @poetc_logf(%x: f32) -> f32
    attributes {cycles = 20.0 : f32, unlike_fused = [5.546142578125 : f32]} {
  // x = 2^k * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); denormals are scaled up first.
  %min_normal = arith.constant 1.17549435e-38 : f32
  %two23 = arith.constant 8388608.0 : f32
  %i0 = arith.constant 0 : i32
  %i23 = arith.constant 23 : i32
  %bias = arith.constant 127 : i32
  %mantissa_mask = arith.constant 8388607 : i32
  %sqrt_half_bits = arith.constant 1060439283 : i32
  %offset = arith.constant 4913933 : i32
  %tiny = arith.cmpf olt, %x, %min_normal : f32
  %x_up = arith.mulf %x, %two23 : f32
  %x_normal = arith.select %tiny, %x_up, %x : f32
  %k_tiny = arith.select %tiny, %i23, %i0 : i32
  %bits = arith.bitcast %x_normal : f32 to i32
  %moved = arith.addi %bits, %offset : i32
  %exponent = arith.shrsi %moved, %i23 : i32
  %unbiased = arith.subi %exponent, %bias : i32
  %k = arith.subi %unbiased, %k_tiny : i32
  %mantissa = arith.andi %moved, %mantissa_mask : i32
  %m_bits = arith.addi %mantissa, %sqrt_half_bits : i32
  %m = arith.bitcast %m_bits : i32 to f32
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %half = arith.constant 0.5 : f32
  %kf = arith.sitofp %k : i32 to f32
  %f = arith.subf %m, %one : f32
  // log(1 + f) = f - f^2/2 + s * (f^2/2 + z * p(z)), s = f / (2 + f), z = s^2,
  // p of degree 2, error 2^-30
  %f_plus_two = arith.addf %f, %two : f32
  %s = arith.divf %f, %f_plus_two : f32
  %z = arith.mulf %s, %s : f32
  %p2 = arith.constant 0.29871073 : f32
  %p1 = arith.constant 0.39977577 : f32
  %p0 = arith.constant 0.66666776 : f32
  %p2z = arith.mulf %p2, %z : f32
  %p21 = arith.addf %p2z, %p1 : f32
  %p21z = arith.mulf %p21, %z : f32
  %p = arith.addf %p21z, %p0 : f32
  %pz = arith.mulf %p, %z : f32
  %half_f = arith.mulf %half, %f : f32
  %half_square = arith.mulf %half_f, %f : f32
  %series = arith.addf %half_square, %pz : f32
  %s_series = arith.mulf %s, %series : f32
  // + k * ln(2), in two parts; the first has 16 bits, so its product with k is exact.
  %ln2_high = arith.constant 0.69314575 : f32
  %ln2_low = arith.constant 1.4286068e-06 : f32
  %k_low = arith.mulf %kf, %ln2_low : f32
  %k_high = arith.mulf %kf, %ln2_high : f32
  %low = arith.addf %s_series, %k_low : f32
  %less = arith.subf %half_square, %low : f32
  %fraction = arith.subf %f, %less : f32
  %value = arith.addf %k_high, %fraction : f32
  // log(+-0) = -inf, log(x < 0) = NaN, log(inf) = inf, log(NaN) = NaN
  %zero = arith.constant 0.0 : f32
  %infinity = arith.constant 0x7F800000 : f32
  %minus_infinity = arith.constant 0xFF800000 : f32
  %not_a_number = arith.constant 0x7FC00000 : f32
  %is_zero = arith.cmpf oeq, %x, %zero : f32
  %negative = arith.cmpf olt, %x, %zero : f32
  %not_finite = arith.cmpf uge, %x, %infinity : f32
  %or_zero = arith.select %is_zero, %minus_infinity, %value : f32
  %or_negative = arith.select %negative, %not_a_number, %or_zero : f32
  %result = arith.select %not_finite, %x, %or_negative : f32
  func.return %result : f32
}

func.func @poetc_tanhf(%x: f32) -> f32
    attributes {cycles = 30.0 : f32, unlike_fused = [0.75 : f32]} {
  // |x| < 0.6875: tanh(x) = x + x * (0 - z * (p0 + p1 * z) / (q0 + z)), z = x^2, error 2^-26;
  // 0 - 0 is +0, so that -0 stays.
  %z = arith.mulf %x, %x : f32
  %p1 = arith.constant 0.0037874712 : f32
  %p0 = arith.constant 0.8239008 : f32
  %q0 = arith.constant 2.4717057 : f32
  %zero = arith.constant 0.0 : f32
  %p1z = arith.mulf %p1, %z : f32
  %p = arith.addf %p1z, %p0 : f32
  %zp = arith.mulf %z, %p : f32
  %q = arith.addf %z, %q0 : f32
  %less = arith.divf %zp, %q : f32
  %more = arith.subf %zero, %less : f32
  %x_more = arith.mulf %x, %more : f32
  %near = arith.addf %x, %x_more : f32
  // else tanh(a) = 1 - 2 / (exp(2 a) + 1), a = |x|, which is 1 from 9.02 on
  %abs_mask = arith.constant 2147483647 : i32
  %bits = arith.bitcast %x : f32 to i32
  %a_bits = arith.andi %bits, %abs_mask : i32
  %sign = arith.subi %bits, %a_bits : i32
  // Clamped to 16 as an integer, which NaN is, too.
  %limit = arith.constant 1098907648 : i32
  %beyond = arith.cmpi sgt, %a_bits, %limit : i32
  %clamped = arith.select %beyond, %limit, %a_bits : i32
  %a_in = arith.bitcast %clamped : i32 to f32
  // 2 a = n * ln(2) + 2 h, as in exp; a float is near enough to ln(2).
  %two_log2e = arith.constant 2.88539 : f32
  %shifter = arith.constant 12582912.0 : f32
  %half_ln2 = arith.constant 0.3465736 : f32
  %a_log2 = arith.mulf %a_in, %two_log2e : f32
  %shifted = arith.addf %a_log2, %shifter : f32
  %nf = arith.subf %shifted, %shifter : f32
  %n_ln2 = arith.mulf %nf, %half_ln2 : f32
  %h = arith.subf %a_in, %n_ln2 : f32
  // exp(2 h) = 1 + h * e(h), e of degree 4, error 2^-25 of tanh
  %e4 = arith.constant 0.26618662 : f32
  %e3 = arith.constant 0.6703691 : f32
  %e2 = arith.constant 1.3333684 : f32
  %e1 = arith.constant 1.9999659 : f32
  %e0 = arith.constant 1.9999999 : f32
  %one = arith.constant 1.0 : f32
  %e4h = arith.mulf %e4, %h : f32
  %e43 = arith.addf %e4h, %e3 : f32
  %e43h = arith.mulf %e43, %h : f32
  %e42 = arith.addf %e43h, %e2 : f32
  %e42h = arith.mulf %e42, %h : f32
  %e41 = arith.addf %e42h, %e1 : f32
  %e41h = arith.mulf %e41, %h : f32
  %e = arith.addf %e41h, %e0 : f32
  %he = arith.mulf %h, %e : f32
  %exp_2h = arith.addf %one, %he : f32
  // * 2^n, which is added to the exponent: the low bits of `shifted` are n
  %exponent_bit = arith.constant 23 : i32
  %shifted_bits = arith.bitcast %shifted : f32 to i32
  %n_high = arith.shli %shifted_bits, %exponent_bit : i32
  %exp_2h_bits = arith.bitcast %exp_2h : f32 to i32
  %exp_2a_bits = arith.addi %exp_2h_bits, %n_high : i32
  %exp_2a = arith.bitcast %exp_2a_bits : i32 to f32
  %two = arith.constant 2.0 : f32
  %exp_plus_one = arith.addf %exp_2a, %one : f32
  %rest = arith.divf %two, %exp_plus_one : f32
  %far = arith.subf %one, %rest : f32
  %far_bits = arith.bitcast %far : f32 to i32
  %signed_bits = arith.ori %far_bits, %sign : i32
  %infinity = arith.constant 2139095040 : i32
  %sign_bit = arith.constant 31 : i32
  %below_nan = arith.subi %infinity, %a_bits : i32
  %ones_if_nan = arith.shrsi %below_nan, %sign_bit : i32
  %or_nan_bits = arith.ori %signed_bits, %ones_if_nan : i32
  %or_nan = arith.bitcast %or_nan_bits : i32 to f32
  %switch = arith.constant 0.47265625 : f32
  %is_near = arith.cmpf olt, %z, %switch : f32
  %result = arith.select %is_near, %near, %or_nan : f32
  func.return %result : f32
}

// Exactly rounded, so a target's square root instruction may take its place.
func.func @poetc_sqrtf(%x: f32) -> f32 attributes {cycles = 8.0 : f32} {
  // x = M * 2^(2 q - 23), M an integer, 2^23 <= M < 2^25; denormals are scaled up by 2^24 first.
  %min_normal = arith.constant 1.17549435e-38 : f32
  %two24 = arith.constant 16777216.0 : f32
  %i0 = arith.constant 0 : i32
  %i1 = arith.constant 1 : i32
  %i12 = arith.constant 12 : i32
  %i23 = arith.constant 23 : i32
  %bias = arith.constant 127 : i32
  %implicit_bit = arith.constant 8388608 : i32
  %mantissa_mask = arith.constant 8388607 : i32
  %tiny = arith.cmpf olt, %x, %min_normal : f32
  %x_up = arith.mulf %x, %two24 : f32
  %x_normal = arith.select %tiny, %x_up, %x : f32
  %q_tiny = arith.select %tiny, %i12, %i0 : i32
  %bits = arith.bitcast %x_normal : f32 to i32
  %biased = arith.shrsi %bits, %i23 : i32
  %exponent = arith.subi %biased, %bias : i32
  %q = arith.shrsi %exponent, %i1 : i32
  %odd = arith.andi %exponent, %i1 : i32
  %fraction = arith.andi %bits, %mantissa_mask : i32
  %mantissa = arith.ori %fraction, %implicit_bit : i32
  %M = arith.shli %mantissa, %odd : i32
  // m = M / 2^23 in [1, 4); y approximates 1 / sqrt(m): guess from the bits, two Newton steps
  %m_exponent = arith.addi %bias, %odd : i32
  %m_high = arith.shli %m_exponent, %i23 : i32
  %m_bits = arith.ori %m_high, %fraction : i32
  %m = arith.bitcast %m_bits : i32 to f32
  %half = arith.constant 0.5 : f32
  %three_halves = arith.constant 1.5 : f32
  %guess = arith.constant 1597463174 : i32
  %m_bits_half = arith.shrsi %m_bits, %i1 : i32
  %y0_bits = arith.subi %guess, %m_bits_half : i32
  %y0 = arith.bitcast %y0_bits : i32 to f32
  %half_m = arith.mulf %half, %m : f32
  %y0_m = arith.mulf %half_m, %y0 : f32
  %y0_mm = arith.mulf %y0_m, %y0 : f32
  %y0_step = arith.subf %three_halves, %y0_mm : f32
  %y1 = arith.mulf %y0, %y0_step : f32
  %y1_m = arith.mulf %half_m, %y1 : f32
  %y1_mm = arith.mulf %y1_m, %y1 : f32
  %y1_step = arith.subf %three_halves, %y1_mm : f32
  %y = arith.mulf %y1, %y1_step : f32
  // s approximates sqrt(m) in [1, 2) to less than one unit in the last place
  %s0 = arith.mulf %m, %y : f32
  %s0_square = arith.mulf %s0, %s0 : f32
  %s0_error = arith.subf %m, %s0_square : f32
  %half_y = arith.mulf %half, %y : f32
  %s0_step = arith.mulf %half_y, %s0_error : f32
  %s = arith.addf %s0, %s0_step : f32
  // S = s * 2^23 is an integer. M * 2^23 - S^2 is small, so its low 32 bits say all of it, and
  // they say on which side of S + 1/2 and S - 1/2 the root is.
  %two23 = arith.constant 8388608.0 : f32
  %s_scaled = arith.mulf %s, %two23 : f32
  %S = arith.fptosi %s_scaled : f32 to i32
  %M_scaled = arith.shli %M, %i23 : i32
  %S_square = arith.muli %S, %S : i32
  %rest = arith.subi %M_scaled, %S_square : i32
  %S_minus = arith.subi %i0, %S : i32
  %up = arith.cmpi sgt, %rest, %S : i32
  %down = arith.cmpi sle, %rest, %S_minus : i32
  %up_by = arith.extui %up : i1 to i32
  %down_by = arith.extui %down : i1 to i32
  %S_up = arith.addi %S, %up_by : i32
  %root = arith.subi %S_up, %down_by : i32
  %q_scaled = arith.subi %q, %q_tiny : i32
  %result_exponent = arith.addi %q_scaled, %bias : i32
  %result_high = arith.shli %result_exponent, %i23 : i32
  %result_low = arith.subi %root, %implicit_bit : i32
  %result_bits = arith.addi %result_high, %result_low : i32
  %value = arith.bitcast %result_bits : i32 to f32
  // sqrt(+-0) = +-0, sqrt(x < 0) = NaN, sqrt(inf) = inf, sqrt(NaN) = NaN
  %zero = arith.constant 0.0 : f32
  %infinity = arith.constant 0x7F800000 : f32
  %not_a_number = arith.constant 0x7FC00000 : f32
  %is_zero = arith.cmpf oeq, %x, %zero : f32
  %not_finite = arith.cmpf uge, %x, %infinity : f32
  %same = arith.ori %is_zero, %not_finite : i1
  %negative = arith.cmpf olt, %x, %zero : f32
  %or_negative = arith.select %negative, %not_a_number, %value : f32
  %result = arith.select %same, %x, %or_negative : f32
  func.return %result : f32
}

func.func @poetc_rsqrtf(%x: f32) -> f32 attributes {cycles = 13.0 : f32} {
  %one = arith.constant 1.0 : f32
  %root = func.call @poetc_sqrtf(%x) : (f32) -> f32
  %value = arith.divf %one, %root : f32
  %nan = arith.cmpf uno, %root, %root : f32
  %result = arith.select %nan, %root, %value : f32
  func.return %result : f32
}

// The upper 12 bits of the mantissa of x; what remains has 12 bits too, so that products of such
// halves are exact (Veltkamp and Dekker).
func.func private @poetc_upper_half(%x: f32) -> f32 {
  %mask = arith.constant -4096 : i32
  %bits = arith.bitcast %x : f32 to i32
  %upper_bits = arith.andi %bits, %mask : i32
  %upper = arith.bitcast %upper_bits : i32 to f32
  func.return %upper : f32
}

// a * b - p, where p is a * b rounded.
func.func private @poetc_product_error(%a: f32, %b: f32, %p: f32) -> f32 {
  %a_high = func.call @poetc_upper_half(%a) : (f32) -> f32
  %b_high = func.call @poetc_upper_half(%b) : (f32) -> f32
  %a_low = arith.subf %a, %a_high : f32
  %b_low = arith.subf %b, %b_high : f32
  %high_high = arith.mulf %a_high, %b_high : f32
  %high_low = arith.mulf %a_high, %b_low : f32
  %low_high = arith.mulf %a_low, %b_high : f32
  %low_low = arith.mulf %a_low, %b_low : f32
  %e0 = arith.subf %high_high, %p : f32
  %e1 = arith.addf %e0, %high_low : f32
  %e2 = arith.addf %e1, %low_high : f32
  %error = arith.addf %e2, %low_low : f32
  func.return %error : f32
}

// x^y = 2^(y * log2(x)) with log2(x) and its product with y as unevaluated sums of two floats
// (names ending in _high and _low), which carries about 44 bits.
func.func @poetc_powf(%x: f32, %y: f32) -> f32
    attributes {cycles = 100.0 : f32, unlike_fused = [19.125 : f32, 1.5 : f32]} {
  %i0 = arith.constant 0 : i32
  %i1 = arith.constant 1 : i32
  %i23 = arith.constant 23 : i32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %infinity = arith.constant 0x7F800000 : f32
  %abs_mask = arith.constant 2147483647 : i32
  %x_bits = arith.bitcast %x : f32 to i32
  %y_bits = arith.bitcast %y : f32 to i32
  %a_bits = arith.andi %x_bits, %abs_mask : i32
  %abs_y_bits = arith.andi %y_bits, %abs_mask : i32
  %a = arith.bitcast %a_bits : i32 to f32
  %abs_y = arith.bitcast %abs_y_bits : i32 to f32
  // |x| = 2^k * m with sqrt(1/2) <= m < sqrt(2), as in the logarithm
  %min_normal = arith.constant 1.17549435e-38 : f32
  %two23 = arith.constant 8388608.0 : f32
  %bias = arith.constant 127 : i32
  %mantissa_mask = arith.constant 8388607 : i32
  %sqrt_half_bits = arith.constant 1060439283 : i32
  %offset = arith.constant 4913933 : i32
  %tiny = arith.cmpf olt, %a, %min_normal : f32
  %a_up = arith.mulf %a, %two23 : f32
  %a_normal = arith.select %tiny, %a_up, %a : f32
  %k_tiny = arith.select %tiny, %i23, %i0 : i32
  %bits = arith.bitcast %a_normal : f32 to i32
  %moved = arith.addi %bits, %offset : i32
  %exponent = arith.shrsi %moved, %i23 : i32
  %unbiased = arith.subi %exponent, %bias : i32
  %k = arith.subi %unbiased, %k_tiny : i32
  %kf = arith.sitofp %k : i32 to f32
  %mantissa = arith.andi %moved, %mantissa_mask : i32
  %m_bits = arith.addi %mantissa, %sqrt_half_bits : i32
  %m = arith.bitcast %m_bits : i32 to f32
  // s = (m - 1) / (m + 1)
  %f = arith.subf %m, %one : f32
  %d_high = arith.addf %m, %one : f32
  %d_part = arith.subf %d_high, %one : f32
  %d_low = arith.subf %m, %d_part : f32
  %s_high = arith.divf %f, %d_high : f32
  %sd = arith.mulf %s_high, %d_high : f32
  %sd_error = func.call @poetc_product_error(%s_high, %d_high, %sd) : (f32, f32, f32) -> f32
  %sd_rest = arith.subf %f, %sd : f32
  %sd_rest1 = arith.subf %sd_rest, %sd_error : f32
  %sd_low = arith.mulf %s_high, %d_low : f32
  %sd_rest2 = arith.subf %sd_rest1, %sd_low : f32
  %s_low = arith.divf %sd_rest2, %d_high : f32
  // z = s^2
  %z_high = arith.mulf %s_high, %s_high : f32
  %z_error = func.call @poetc_product_error(%s_high, %s_high, %z_high) : (f32, f32, f32) -> f32
  %s_sum = arith.addf %s_high, %s_high : f32
  %z_cross = arith.mulf %s_sum, %s_low : f32
  %z_low = arith.addf %z_error, %z_cross : f32
  // log2(m) = s * w, w = c0 + z * (c1 + z * p(z)), p of degree 3, error 2^-43
  %p3 = arith.constant 0.28171927 : f32
  %p2 = arith.constant 0.32001168 : f32
  %p1 = arith.constant 0.41220593 : f32
  %p0 = arith.constant 0.577078 : f32
  %p3z = arith.mulf %p3, %z_high : f32
  %p32 = arith.addf %p3z, %p2 : f32
  %p32z = arith.mulf %p32, %z_high : f32
  %p31 = arith.addf %p32z, %p1 : f32
  %p31z = arith.mulf %p31, %z_high : f32
  %p = arith.addf %p31z, %p0 : f32
  %pz = arith.mulf %p, %z_high : f32
  // v = c1 + pz
  %c1_high = arith.constant 0.9617967 : f32
  %c1_low = arith.constant -7.028462e-09 : f32
  %v_high = arith.addf %c1_high, %pz : f32
  %v_part = arith.subf %v_high, %c1_high : f32
  %v_rest = arith.subf %pz, %v_part : f32
  %v_low = arith.addf %v_rest, %c1_low : f32
  // w = c0 + z * v
  %zv = arith.mulf %z_high, %v_high : f32
  %zv_error = func.call @poetc_product_error(%z_high, %v_high, %zv) : (f32, f32, f32) -> f32
  %zv_cross0 = arith.mulf %z_high, %v_low : f32
  %zv_cross1 = arith.mulf %z_low, %v_high : f32
  %zv_cross = arith.addf %zv_cross0, %zv_cross1 : f32
  %zv_low = arith.addf %zv_error, %zv_cross : f32
  %c0_high = arith.constant 2.88539 : f32
  %c0_low = arith.constant 3.851926e-08 : f32
  %w_high = arith.addf %c0_high, %zv : f32
  %w_part = arith.subf %w_high, %c0_high : f32
  %w_rest = arith.subf %zv, %w_part : f32
  %w_low0 = arith.addf %zv_low, %c0_low : f32
  %w_low = arith.addf %w_rest, %w_low0 : f32
  // l = k + s * w = log2(|x|)
  %sw = arith.mulf %s_high, %w_high : f32
  %sw_error = func.call @poetc_product_error(%s_high, %w_high, %sw) : (f32, f32, f32) -> f32
  %sw_cross0 = arith.mulf %s_high, %w_low : f32
  %sw_cross1 = arith.mulf %s_low, %w_high : f32
  %sw_cross = arith.addf %sw_cross0, %sw_cross1 : f32
  %sw_low = arith.addf %sw_error, %sw_cross : f32
  %l_sum = arith.addf %kf, %sw : f32
  %l_part = arith.subf %l_sum, %kf : f32
  %l_rest = arith.subf %sw, %l_part : f32
  %l_rest1 = arith.addf %l_rest, %sw_low : f32
  %l_high = arith.addf %l_sum, %l_rest1 : f32
  %l_moved = arith.subf %l_high, %l_sum : f32
  %l_low = arith.subf %l_rest1, %l_moved : f32
  // t = y * l. From |y| = 2^32 on every power but that of 1 is 0 or infinity.
  %two32 = arith.constant 4294967296.0 : f32
  %minus_two32 = arith.constant -4294967296.0 : f32
  %y_above = arith.cmpf ogt, %y, %two32 : f32
  %y_below = arith.cmpf olt, %y, %minus_two32 : f32
  %y_low = arith.select %y_above, %two32, %y : f32
  %y_in = arith.select %y_below, %minus_two32, %y_low : f32
  %t_high = arith.mulf %y_in, %l_high : f32
  %t_error = func.call @poetc_product_error(%y_in, %l_high, %t_high) : (f32, f32, f32) -> f32
  %t_cross = arith.mulf %y_in, %l_low : f32
  %t_low = arith.addf %t_error, %t_cross : f32
  // 2^t = exp(r) * 2^n with n the integer nearest to t, r = (t - n) * ln(2)
  %t_max = arith.constant 130.0 : f32
  %t_min = arith.constant -152.0 : f32
  %t_above = arith.cmpf ogt, %t_high, %t_max : f32
  %t_below = arith.cmpf olt, %t_high, %t_min : f32
  %t_outside = arith.ori %t_above, %t_below : i1
  %t_clamp0 = arith.select %t_above, %t_max, %t_high : f32
  %t_in = arith.select %t_below, %t_min, %t_clamp0 : f32
  %t_rest = arith.select %t_outside, %zero, %t_low : f32
  %shifter = arith.constant 12582912.0 : f32
  %shifter_bits = arith.constant 1262485504 : i32
  %ln2 = arith.constant 0.6931472 : f32
  %shifted = arith.addf %t_in, %shifter : f32
  %nf = arith.subf %shifted, %shifter : f32
  %shifted_bits = arith.bitcast %shifted : f32 to i32
  %n = arith.subi %shifted_bits, %shifter_bits : i32
  %t_fraction0 = arith.subf %t_in, %nf : f32
  %t_fraction = arith.addf %t_fraction0, %t_rest : f32
  %r = arith.mulf %t_fraction, %ln2 : f32
  %regular = func.call @poetc_exp_scaled(%r, %n) : (f32, i32) -> f32
  // |x| = 0 and |x| = inf
  %x_zero = arith.cmpf oeq, %a, %zero : f32
  %x_infinite = arith.cmpf oeq, %a, %infinity : f32
  %y_negative = arith.cmpf olt, %y, %zero : f32
  %to_zero = arith.xori %x_zero, %y_negative : i1
  %to_infinity = arith.xori %x_infinite, %y_negative : i1
  %of_zero = arith.select %to_zero, %zero, %infinity : f32
  %of_infinity = arith.select %to_infinity, %infinity, %zero : f32
  %size0 = arith.select %x_zero, %of_zero, %regular : f32
  %size1 = arith.select %x_infinite, %of_infinity, %size0 : f32
  // x < 0: y odd: negative, y even: positive, else: NaN. All floats from 2^24 on are even.
  %two24 = arith.constant 16777216.0 : f32
  %not_a_number = arith.constant 0x7FC00000 : f32
  %y_moderate = arith.cmpf olt, %abs_y, %two24 : f32
  %y_or_zero = arith.select %y_moderate, %y, %zero : f32
  %y_int = arith.fptosi %y_or_zero : f32 to i32
  %y_whole = arith.sitofp %y_int : i32 to f32
  %y_fractional = arith.cmpf one, %y_whole, %y_or_zero : f32
  %y_odd = arith.andi %y_int, %i1 : i32
  %odd_mask = arith.subi %i0, %y_odd : i32
  %whole_mask = arith.select %y_fractional, %i0, %odd_mask : i32
  %x_sign = arith.subi %x_bits, %a_bits : i32
  %sign = arith.andi %x_sign, %whole_mask : i32
  %size_bits = arith.bitcast %size1 : f32 to i32
  %signed_bits = arith.ori %size_bits, %sign : i32
  %signed = arith.bitcast %signed_bits : i32 to f32
  %minus_infinity = arith.constant 0xFF800000 : f32
  %x_negative = arith.cmpf olt, %x, %zero : f32
  %x_above = arith.cmpf ogt, %x, %minus_infinity : f32
  %x_negative_finite = arith.andi %x_negative, %x_above : i1
  %undefined = arith.andi %x_negative_finite, %y_fractional : i1
  %defined = arith.select %undefined, %not_a_number, %signed : f32
  // NaN, but x^0 = 1 and 1^y = 1 for all x and y
  %x_nan = arith.cmpf uno, %x, %x : f32
  %y_nan = arith.cmpf uno, %y, %y : f32
  %or_y = arith.select %y_nan, %y, %defined : f32
  %or_x = arith.select %x_nan, %x, %or_y : f32
  %x_one = arith.cmpf oeq, %x, %one : f32
  %y_zero = arith.cmpf oeq, %y, %zero : f32
  %is_one = arith.ori %x_one, %y_zero : i1
  %result = arith.select %is_one, %one, %or_x : f32
  func.return %result : f32
}
