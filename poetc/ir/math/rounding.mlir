// Rounding to integers, exactly. See elementary.mlir for what functions may use.

// Magnitudes from 2^23 on are integers, and NaN compares as larger.
func.func @poetc_floorf(%x: f32) -> f32 {
  %bits = arith.bitcast %x : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %magnitude = arith.andi %bits, %abs_mask : i32
  %sign_mask = arith.constant -2147483648 : i32
  %sign = arith.andi %bits, %sign_mask : i32
  %two23_bits = arith.constant 1258291200 : i32
  %inside = arith.cmpi slt, %magnitude, %two23_bits : i32
  %zero = arith.constant 0.0 : f32
  %near = arith.select %inside, %x, %zero : f32
  %n = arith.fptosi %near : f32 to i32
  %towards_zero = arith.sitofp %n : i32 to f32
  %one = arith.constant 1.0 : f32
  %below = arith.subf %towards_zero, %one : f32
  %b = arith.cmpf ogt, %towards_zero, %near : f32
  %rounded = arith.select %b, %below, %towards_zero : f32
  %bits_2 = arith.bitcast %rounded : f32 to i32
  %t = arith.ori %bits_2, %sign : i32
  %value = arith.bitcast %t : i32 to f32
  %result = arith.select %inside, %value, %x : f32
  func.return %result : f32
}

func.func @poetc_ceilf(%x: f32) -> f32 {
  %bits = arith.bitcast %x : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %magnitude = arith.andi %bits, %abs_mask : i32
  %sign_mask = arith.constant -2147483648 : i32
  %sign = arith.andi %bits, %sign_mask : i32
  %two23_bits = arith.constant 1258291200 : i32
  %inside = arith.cmpi slt, %magnitude, %two23_bits : i32
  %zero = arith.constant 0.0 : f32
  %near = arith.select %inside, %x, %zero : f32
  %n = arith.fptosi %near : f32 to i32
  %towards_zero = arith.sitofp %n : i32 to f32
  %one = arith.constant 1.0 : f32
  %above = arith.addf %towards_zero, %one : f32
  %b = arith.cmpf olt, %towards_zero, %near : f32
  %rounded = arith.select %b, %above, %towards_zero : f32
  %bits_2 = arith.bitcast %rounded : f32 to i32
  %t = arith.ori %bits_2, %sign : i32
  %value = arith.bitcast %t : i32 to f32
  %result = arith.select %inside, %value, %x : f32
  func.return %result : f32
}

// To nearest, halves to even: adding 2^23 leaves no bits for a fraction.
func.func @poetc_roundevenf(%x: f32) -> f32 {
  %bits = arith.bitcast %x : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %magnitude = arith.andi %bits, %abs_mask : i32
  %sign_mask = arith.constant -2147483648 : i32
  %sign = arith.andi %bits, %sign_mask : i32
  %two23_bits = arith.constant 1258291200 : i32
  %inside = arith.cmpi slt, %magnitude, %two23_bits : i32
  %t = arith.bitcast %magnitude : i32 to f32
  %c = arith.constant 8388608.0 : f32
  %t_2 = arith.addf %t, %c : f32
  %rounded = arith.subf %t_2, %c : f32
  %bits_2 = arith.bitcast %rounded : f32 to i32
  %t_3 = arith.ori %bits_2, %sign : i32
  %value = arith.bitcast %t_3 : i32 to f32
  %result = arith.select %inside, %value, %x : f32
  func.return %result : f32
}

// To nearest, halves away from zero.
func.func @poetc_roundf(%x: f32) -> f32 {
  %bits = arith.bitcast %x : f32 to i32
  %abs_mask = arith.constant 2147483647 : i32
  %magnitude = arith.andi %bits, %abs_mask : i32
  %sign_mask = arith.constant -2147483648 : i32
  %sign = arith.andi %bits, %sign_mask : i32
  %two23_bits = arith.constant 1258291200 : i32
  %inside = arith.cmpi slt, %magnitude, %two23_bits : i32
  %t = arith.bitcast %magnitude : i32 to f32
  %zero = arith.constant 0.0 : f32
  %near = arith.select %inside, %t, %zero : f32
  %n = arith.fptosi %near : f32 to i32
  %towards_zero = arith.sitofp %n : i32 to f32
  %fraction = arith.subf %near, %towards_zero : f32
  %one = arith.constant 1.0 : f32
  %above = arith.addf %towards_zero, %one : f32
  %half = arith.constant 0.5 : f32
  %b = arith.cmpf olt, %fraction, %half : f32
  %rounded = arith.select %b, %towards_zero, %above : f32
  %bits_2 = arith.bitcast %rounded : f32 to i32
  %t_2 = arith.ori %bits_2, %sign : i32
  %value = arith.bitcast %t_2 : i32 to f32
  %result = arith.select %inside, %value, %x : f32
  func.return %result : f32
}
