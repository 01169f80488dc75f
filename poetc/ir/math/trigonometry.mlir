// Trigonometric functions, within 2 ulp for all floats.

// Bits of the product of a number with 16 bits, six in a row: what is carried on.
func.func private @poetc_limb(%word: i32, %factor: i32, %carry: i32) -> i32 {
  %k = arith.constant 65535 : i32
  %t = arith.andi %word, %k : i32
  %t_2 = arith.muli %t, %factor : i32
  %result = arith.addi %t_2, %carry : i32
  func.return %result : i32
}

// Logical shift to the right by 16.
func.func private @poetc_upper(%word: i32) -> i32 {
  %i16 = arith.constant 16 : i32
  %t = arith.shrsi %word, %i16 : i32
  %k = arith.constant 65535 : i32
  %result = arith.andi %t, %k : i32
  func.return %result : i32
}

// Word number `k` + `j` of 2/pi behind 40 zero bits, moved left by `shift` < 32 bits: `high` and
// the word that follows it, `low`.
func.func private @poetc_window(%high: i32, %low: i32, %shift: i32) -> i32 {
  %i1 = arith.constant 1 : i32
  %t = arith.shrsi %low, %i1 : i32
  %abs_mask = arith.constant 2147483647 : i32
  %t_2 = arith.andi %t, %abs_mask : i32
  %i31 = arith.constant 31 : i32
  %t_3 = arith.subi %i31, %shift : i32
  %rest = arith.shrsi %t_2, %t_3 : i32
  %t_4 = arith.shli %high, %shift : i32
  %result = arith.ori %t_4, %rest : i32
  func.return %result : i32
}

// sin(x + quadrants * pi/2) for x >= 0 and 0 <= quadrants < 2.
func.func private @poetc_sine(%x: f32, %quadrants: i32) -> f32 {
  // x = mantissa * 2^(exponent - 150). Only those bits of 2/pi matter whose product with it is less
  // than four quadrants (Payne and Hanek, 1983): 96 bits from bit exponent - 112 on, where 40 zero
  // bits precede 2/pi. Below 2^-15 the sine is x and the cosine 1.
  %x_bits = arith.bitcast %x : f32 to i32
  %i23 = arith.constant 23 : i32
  %exponent = arith.shrsi %x_bits, %i23 : i32
  %k = arith.constant 112 : i32
  %tiny = arith.cmpi slt, %exponent, %k : i32
  %i0 = arith.constant 0 : i32
  %t = arith.subi %exponent, %k : i32
  %place = arith.select %tiny, %i0, %t : i32
  %k_2 = arith.constant 142 : i32
  %b = arith.cmpi sgt, %place, %k_2 : i32
  %place_in = arith.select %b, %k_2, %place : i32
  %mantissa_mask = arith.constant 8388607 : i32
  %t_2 = arith.andi %x_bits, %mantissa_mask : i32
  %implicit_bit = arith.constant 8388608 : i32
  %mantissa = arith.ori %t_2, %implicit_bit : i32
  %i31 = arith.constant 31 : i32
  %shift = arith.andi %place_in, %i31 : i32
  %i5 = arith.constant 5 : i32
  %word = arith.shrsi %place_in, %i5 : i32
  %k0 = arith.cmpi eq, %word, %i0 : i32
  %i1 = arith.constant 1 : i32
  %k1 = arith.cmpi eq, %word, %i1 : i32
  %i2 = arith.constant 2 : i32
  %k2 = arith.cmpi eq, %word, %i2 : i32
  %i3 = arith.constant 3 : i32
  %k3 = arith.cmpi eq, %word, %i3 : i32
  %k_3 = arith.constant 10680707 : i32
  %k_4 = arith.constant 1850622997 : i32
  %k_5 = arith.constant 704390999 : i32
  %k_6 = arith.constant -772459299 : i32
  %t_3 = arith.select %k3, %k_5, %k_6 : i32
  %t_4 = arith.select %k2, %k_4, %t_3 : i32
  %t_5 = arith.select %k1, %k_3, %t_4 : i32
  %word0 = arith.select %k0, %i0, %t_5 : i32
  %k_7 = arith.constant -1059364203 : i32
  %t_6 = arith.select %k3, %k_6, %k_7 : i32
  %t_7 = arith.select %k2, %k_5, %t_6 : i32
  %t_8 = arith.select %k1, %k_4, %t_7 : i32
  %word1 = arith.select %k0, %k_3, %t_8 : i32
  %k_8 = arith.constant -1724103792 : i32
  %t_9 = arith.select %k3, %k_7, %k_8 : i32
  %t_10 = arith.select %k2, %k_6, %t_9 : i32
  %t_11 = arith.select %k1, %k_5, %t_10 : i32
  %word2 = arith.select %k0, %k_4, %t_11 : i32
  %k_9 = arith.constant 1107186019 : i32
  %t_12 = arith.select %k3, %k_8, %k_9 : i32
  %t_13 = arith.select %k2, %k_7, %t_12 : i32
  %t_14 = arith.select %k1, %k_6, %t_13 : i32
  %word3 = arith.select %k0, %k_5, %t_14 : i32
  %top = func.call @poetc_window(%word0, %word1, %shift) : (i32, i32, i32) -> i32
  %middle = func.call @poetc_window(%word1, %word2, %shift) : (i32, i32, i32) -> i32
  %bottom = func.call @poetc_window(%word2, %word3, %shift) : (i32, i32, i32) -> i32
  // The product with both halves of the mantissa, 12 bits each, modulo 2^96.
  %k_10 = arith.constant 4095 : i32
  %lower = arith.andi %mantissa, %k_10 : i32
  %i12 = arith.constant 12 : i32
  %upper = arith.shrsi %mantissa, %i12 : i32
  %l0 = func.call @poetc_limb(%bottom, %lower, %i0) : (i32, i32, i32) -> i32
  %t_15 = func.call @poetc_upper(%bottom) : (i32) -> i32
  %i16 = arith.constant 16 : i32
  %t_16 = arith.shrsi %l0, %i16 : i32
  %l1 = func.call @poetc_limb(%t_15, %lower, %t_16) : (i32, i32, i32) -> i32
  %t_17 = arith.shrsi %l1, %i16 : i32
  %l2 = func.call @poetc_limb(%middle, %lower, %t_17) : (i32, i32, i32) -> i32
  %t_18 = func.call @poetc_upper(%middle) : (i32) -> i32
  %t_19 = arith.shrsi %l2, %i16 : i32
  %l3 = func.call @poetc_limb(%t_18, %lower, %t_19) : (i32, i32, i32) -> i32
  %t_20 = arith.shrsi %l3, %i16 : i32
  %l4 = func.call @poetc_limb(%top, %lower, %t_20) : (i32, i32, i32) -> i32
  %t_21 = func.call @poetc_upper(%top) : (i32) -> i32
  %t_22 = arith.shrsi %l4, %i16 : i32
  %l5 = func.call @poetc_limb(%t_21, %lower, %t_22) : (i32, i32, i32) -> i32
  %u0 = func.call @poetc_limb(%bottom, %upper, %i0) : (i32, i32, i32) -> i32
  %t_23 = arith.shrsi %u0, %i16 : i32
  %u1 = func.call @poetc_limb(%t_15, %upper, %t_23) : (i32, i32, i32) -> i32
  %t_24 = arith.shrsi %u1, %i16 : i32
  %u2 = func.call @poetc_limb(%middle, %upper, %t_24) : (i32, i32, i32) -> i32
  %t_25 = arith.shrsi %u2, %i16 : i32
  %u3 = func.call @poetc_limb(%t_18, %upper, %t_25) : (i32, i32, i32) -> i32
  %t_26 = arith.shrsi %u3, %i16 : i32
  %u4 = func.call @poetc_limb(%top, %upper, %t_26) : (i32, i32, i32) -> i32
  %t_27 = arith.shrsi %u4, %i16 : i32
  %u5 = func.call @poetc_limb(%t_21, %upper, %t_27) : (i32, i32, i32) -> i32
  %k_11 = arith.constant 65535 : i32
  %t_28 = arith.andi %l2, %k_11 : i32
  %t_29 = arith.shli %l3, %i16 : i32
  %lower_middle = arith.ori %t_28, %t_29 : i32
  %t_30 = arith.andi %l4, %k_11 : i32
  %t_31 = arith.shli %l5, %i16 : i32
  %lower_top = arith.ori %t_30, %t_31 : i32
  %t_32 = arith.andi %u0, %k_11 : i32
  %t_33 = arith.shli %u1, %i16 : i32
  %upper_bottom = arith.ori %t_32, %t_33 : i32
  %t_34 = arith.andi %u2, %k_11 : i32
  %t_35 = arith.shli %u3, %i16 : i32
  %upper_middle = arith.ori %t_34, %t_35 : i32
  %t_36 = arith.andi %u4, %k_11 : i32
  %t_37 = arith.shli %u5, %i16 : i32
  %upper_top = arith.ori %t_36, %t_37 : i32
  %t_38 = arith.shli %upper_middle, %i12 : i32
  %i20 = arith.constant 20 : i32
  %t_39 = arith.shrsi %upper_bottom, %i20 : i32
  %t_40 = arith.andi %t_39, %k_10 : i32
  %moved_middle = arith.ori %t_38, %t_40 : i32
  %t_41 = arith.shli %upper_top, %i12 : i32
  %t_42 = arith.shrsi %upper_middle, %i20 : i32
  %t_43 = arith.andi %t_42, %k_10 : i32
  %moved_top = arith.ori %t_41, %t_43 : i32
  %sum_middle = arith.addi %lower_middle, %moved_middle : i32
  %sign_mask = arith.constant -2147483648 : i32
  %t_44 = arith.xori %sum_middle, %sign_mask : i32
  %t_45 = arith.xori %lower_middle, %sign_mask : i32
  %b_2 = arith.cmpi slt, %t_44, %t_45 : i32
  %carry = arith.extui %b_2 : i1 to i32
  %t_46 = arith.addi %lower_top, %moved_top : i32
  %sum_top = arith.addi %t_46, %carry : i32
  // In quadrants: two bits, and 62 behind the point. The nearest integer is taken off.
  %k_12 = arith.constant 536870912 : i32
  %t_47 = arith.addi %sum_top, %k_12 : i32
  %i30 = arith.constant 30 : i32
  %nearest = arith.shrsi %t_47, %i30 : i32
  %t_48 = arith.shli %nearest, %i30 : i32
  %fraction_top = arith.subi %sum_top, %t_48 : i32
  %negative = arith.shrsi %fraction_top, %i31 : i32
  %size_top = arith.xori %fraction_top, %negative : i32
  %size_middle = arith.xori %sum_middle, %negative : i32
  %k_13 = arith.constant -64 : i32
  %t_49 = arith.andi %size_top, %k_13 : i32
  %t_50 = arith.sitofp %t_49 : i32 to f32
  %c = arith.constant 9.313226e-10 : f32
  %high = arith.mulf %t_50, %c : f32
  %i63 = arith.constant 63 : i32
  %t_51 = arith.andi %size_top, %i63 : i32
  %i25 = arith.constant 25 : i32
  %t_52 = arith.shli %t_51, %i25 : i32
  %i7 = arith.constant 7 : i32
  %t_53 = arith.shrsi %size_middle, %i7 : i32
  %k_14 = arith.constant 33554431 : i32
  %t_54 = arith.andi %t_53, %k_14 : i32
  %t_55 = arith.ori %t_52, %t_54 : i32
  %t_56 = arith.sitofp %t_55 : i32 to f32
  %c_2 = arith.constant 2.7755576e-17 : f32
  %low = arith.mulf %t_56, %c_2 : f32
  %first = arith.addf %high, %low : f32
  %t_57 = arith.subf %first, %high : f32
  %second = arith.subf %low, %t_57 : f32
  // r = (first + second) * pi/2, as r + rest.
  %c_3 = arith.constant 1.5707964 : f32
  %r = arith.mulf %first, %c_3 : f32
  %error = func.call @poetc_product_error(%first, %c_3, %r) : (f32, f32, f32) -> f32
  %c_4 = arith.constant -4.371139e-08 : f32
  %t_58 = arith.mulf %first, %c_4 : f32
  %t_59 = arith.addf %error, %t_58 : f32
  %t_60 = arith.mulf %second, %c_3 : f32
  %rest = arith.addf %t_59, %t_60 : f32
  %z = arith.mulf %r, %r : f32
  // sin(r) = r + r^3 * p(z), error 2^-32; cos(r) = 1 - z/2 + z^2 * q(z), error 2^-33
  %c_5 = arith.constant 2.8372476e-06 : f32
  %c_6 = arith.constant -0.00019853498 : f32
  %c_7 = arith.constant 0.00833338 : f32
  %c_8 = arith.constant -0.16666667 : f32
  %p = arith.mulf %c_5, %z : f32
  %p_2 = arith.addf %p, %c_6 : f32
  %p_3 = arith.mulf %p_2, %z : f32
  %p_4 = arith.addf %p_3, %c_7 : f32
  %p_5 = arith.mulf %p_4, %z : f32
  %p_6 = arith.addf %p_5, %c_8 : f32
  %half = arith.constant 0.5 : f32
  %half_z = arith.mulf %half, %z : f32
  %z_error = func.call @poetc_product_error(%r, %r, %z) : (f32, f32, f32) -> f32
  %t_61 = arith.mulf %half_z, %rest : f32
  %t_62 = arith.subf %rest, %t_61 : f32
  %t_63 = arith.mulf %z, %p_6 : f32
  %t_64 = arith.mulf %z_error, %p_6 : f32
  %t_65 = arith.addf %t_63, %t_64 : f32
  %t_66 = arith.mulf %r, %t_65 : f32
  %sine_rest = arith.addf %t_62, %t_66 : f32
  %sine = arith.addf %r, %sine_rest : f32
  %c_9 = arith.constant 2.4430661e-05 : f32
  %c_10 = arith.constant -0.0013887301 : f32
  %c_11 = arith.constant 0.041666646 : f32
  %p_7 = arith.mulf %c_9, %z : f32
  %p_8 = arith.addf %p_7, %c_10 : f32
  %p_9 = arith.mulf %p_8, %z : f32
  %q = arith.addf %p_9, %c_11 : f32
  %one = arith.constant 1.0 : f32
  %less = arith.subf %one, %half_z : f32
  %t_67 = arith.subf %one, %less : f32
  %t_68 = arith.subf %t_67, %half_z : f32
  %t_69 = arith.mulf %half, %z_error : f32
  %lost = arith.subf %t_68, %t_69 : f32
  %t_70 = arith.mulf %z, %z : f32
  %t_71 = arith.mulf %t_70, %q : f32
  %t_72 = arith.addf %lost, %t_71 : f32
  %t_73 = arith.mulf %r, %rest : f32
  %t_74 = arith.subf %t_72, %t_73 : f32
  %cosine = arith.addf %less, %t_74 : f32
  %quadrant = arith.addi %nearest, %quadrants : i32
  %t_75 = arith.andi %quadrant, %i1 : i32
  %odd = arith.cmpi eq, %t_75, %i1 : i32
  %bits = arith.bitcast %sine : f32 to i32
  %t_76 = arith.andi %negative, %sign_mask : i32
  %t_77 = arith.xori %bits, %t_76 : i32
  %flipped = arith.bitcast %t_77 : i32 to f32
  %size = arith.select %odd, %cosine, %flipped : f32
  %t_78 = arith.andi %quadrant, %i2 : i32
  %sign = arith.shli %t_78, %i30 : i32
  %bits_2 = arith.bitcast %size : f32 to i32
  %t_79 = arith.xori %bits_2, %sign : i32
  %value = arith.bitcast %t_79 : i32 to f32
  %b_3 = arith.cmpi eq, %quadrants, %i0 : i32
  %near_zero = arith.select %b_3, %x, %one : f32
  %or_tiny = arith.select %tiny, %near_zero, %value : f32
  %infinity = arith.constant 0x7F800000 : f32
  %b_4 = arith.cmpf olt, %x, %infinity : f32
  %not_a_number = arith.constant 0x7FC00000 : f32
  %result = arith.select %b_4, %or_tiny, %not_a_number : f32
  func.return %result : f32
}

func.func @poetc_sinf(%x: f32) -> f32 {
  %x_bits = arith.bitcast %x : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %t = arith.andi %x_bits, %abs_mask : i32
  %t_2 = arith.bitcast %t : i32 to f32
  %i0 = arith.constant 0 : i32
  %size = func.call @poetc_sine(%t_2, %i0) : (f32, i32) -> f32
  %bits = arith.bitcast %size : f32 to i32
  %sign_mask = arith.constant -2147483648 : i32
  %t_3 = arith.andi %x_bits, %sign_mask : i32
  %t_4 = arith.xori %bits, %t_3 : i32
  %value = arith.bitcast %t_4 : i32 to f32
  %b = arith.cmpf oeq, %x, %x : f32
  %result = arith.select %b, %value, %x : f32
  func.return %result : f32
}

func.func @poetc_cosf(%x: f32) -> f32 {
  %bits = arith.bitcast %x : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %t = arith.andi %bits, %abs_mask : i32
  %t_2 = arith.bitcast %t : i32 to f32
  %i1 = arith.constant 1 : i32
  %value = func.call @poetc_sine(%t_2, %i1) : (f32, i32) -> f32
  %b = arith.cmpf oeq, %x, %x : f32
  %result = arith.select %b, %value, %x : f32
  func.return %result : f32
}

// The angle of the point (x, y): that of the smaller coordinate over the larger one in 0 .. pi/4,
// from which the octant makes the result.
func.func @poetc_atan2f(%y: f32, %x: f32) -> f32 {
  %bits = arith.bitcast %y : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %t = arith.andi %bits, %abs_mask : i32
  %size_y = arith.bitcast %t : i32 to f32
  %bits_2 = arith.bitcast %x : f32 to i32
  %t_2 = arith.andi %bits_2, %abs_mask : i32
  %size_x = arith.bitcast %t_2 : i32 to f32
  %steep = arith.cmpf ogt, %size_y, %size_x : f32
  %above = arith.select %steep, %size_y, %size_x : f32
  %below = arith.select %steep, %size_x, %size_y : f32
  // Sums of two must not be infinite, nor quotients NaN.
  %c = arith.constant 1.0e+38 : f32
  %b = arith.cmpf ogt, %above, %c : f32
  %c_2 = arith.constant 0.25 : f32
  %one = arith.constant 1.0 : f32
  %scale = arith.select %b, %c_2, %one : f32
  %infinity = arith.constant 0x7F800000 : f32
  %infinite = arith.cmpf oeq, %above, %infinity : f32
  %both = arith.cmpf oeq, %below, %infinity : f32
  %t_3 = arith.mulf %above, %scale : f32
  %larger = arith.select %infinite, %one, %t_3 : f32
  %zero = arith.constant 0.0 : f32
  %t_4 = arith.select %both, %one, %zero : f32
  %t_5 = arith.mulf %below, %scale : f32
  %limited = arith.select %infinite, %t_4, %t_5 : f32
  %b_2 = arith.cmpf ogt, %larger, %zero : f32
  %divisor = arith.select %b_2, %larger, %one : f32
  %quotient = arith.divf %limited, %divisor : f32
  // atan(t) = pi/4 + atan((t - 1) / (t + 1)) beyond tan(pi/8)
  %c_3 = arith.constant 0.41421357 : f32
  %far = arith.cmpf ogt, %quotient, %c_3 : f32
  %t_6 = arith.subf %limited, %divisor : f32
  %t_7 = arith.addf %limited, %divisor : f32
  %t_far = arith.divf %t_6, %t_7 : f32
  %t_8 = arith.select %far, %t_far, %quotient : f32
  %z = arith.mulf %t_8, %t_8 : f32
  // atan(t) = t + t^3 * p(z), error 2^-30
  %c_4 = arith.constant -0.06092707 : f32
  %c_5 = arith.constant 0.10600165 : f32
  %c_6 = arith.constant -0.1424451 : f32
  %c_7 = arith.constant 0.19998533 : f32
  %c_8 = arith.constant -0.33333316 : f32
  %p = arith.mulf %c_4, %z : f32
  %p_2 = arith.addf %p, %c_5 : f32
  %p_3 = arith.mulf %p_2, %z : f32
  %p_4 = arith.addf %p_3, %c_6 : f32
  %p_5 = arith.mulf %p_4, %z : f32
  %p_6 = arith.addf %p_5, %c_7 : f32
  %p_7 = arith.mulf %p_6, %z : f32
  %p_8 = arith.addf %p_7, %c_8 : f32
  %t_9 = arith.mulf %t_8, %z : f32
  %curve = arith.mulf %t_9, %p_8 : f32
  %near_angle = arith.addf %t_8, %curve : f32
  %c_9 = arith.constant 0.7853982 : f32
  %c_10 = arith.constant -2.1855695e-08 : f32
  %t_10 = arith.addf %curve, %c_10 : f32
  %t_11 = arith.addf %t_8, %t_10 : f32
  %far_angle = arith.addf %c_9, %t_11 : f32
  %angle = arith.select %far, %far_angle, %near_angle : f32
  %c_11 = arith.constant 1.5707964 : f32
  %t_12 = arith.subf %c_11, %angle : f32
  %c_12 = arith.constant -4.371139e-08 : f32
  %upright = arith.addf %t_12, %c_12 : f32
  %or_steep = arith.select %steep, %upright, %angle : f32
  %c_13 = arith.constant 3.1415927 : f32
  %t_13 = arith.subf %c_13, %or_steep : f32
  %c_14 = arith.constant -8.742278e-08 : f32
  %left = arith.addf %t_13, %c_14 : f32
  %i0 = arith.constant 0 : i32
  %b_3 = arith.cmpi slt, %bits_2, %i0 : i32
  %or_left = arith.select %b_3, %left, %or_steep : f32
  %bits_3 = arith.bitcast %or_left : f32 to i32
  %sign_mask = arith.constant -2147483648 : i32
  %t_14 = arith.andi %bits, %sign_mask : i32
  %t_15 = arith.ori %bits_3, %t_14 : i32
  %value = arith.bitcast %t_15 : i32 to f32
  %b_4 = arith.cmpf une, %y, %y : f32
  %or_nan = arith.select %b_4, %y, %value : f32
  %b_5 = arith.cmpf une, %x, %x : f32
  %result = arith.select %b_5, %x, %or_nan : f32
  func.return %result : f32
}
