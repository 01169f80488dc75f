// RUN: xdsl-opt %s -t c | filecheck %s --match-full-lines --strict-whitespace

func.func private @dot(%a: memref<4x8xf32>, %b: memref<8x5xf32>, %out: memref<4x5xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 5 {
      %dot = affine.for %k = 0 to 8 iter_args(%acc = %zero) -> (f32) {
        %x = affine.load %a[%i, %k] : memref<4x8xf32>
        %y = affine.load %b[%k, %j] : memref<8x5xf32>
        %xy = arith.mulf %x, %y : f32
        %next = arith.addf %acc, %xy : f32
        affine.yield %next : f32
      }
      affine.store %dot, %out[%i, %j] : memref<4x5xf32>
    }
  }
  func.return
}

//      CHECK:void dot(
// CHECK-NEXT:    const float *restrict a /* 4x8 */,
// CHECK-NEXT:    const float *restrict b /* 8x5 */,
// CHECK-NEXT:    float *restrict out /* 4x5 */)
// CHECK-NEXT:{
// CHECK-NEXT:    for (int32_t i = 0; i < 4; ++i) {
// CHECK-NEXT:        for (int32_t j = 0; j < 5; ++j) {
// CHECK-NEXT:            float acc = 0.0f;
// CHECK-NEXT:            for (int32_t k = 0; k < 8; ++k) {
// CHECK-NEXT:                acc += a[8 * i + k] * b[5 * k + j];
// CHECK-NEXT:            }
// CHECK-NEXT:            out[5 * i + j] = acc;
// CHECK-NEXT:        }
// CHECK-NEXT:    }
// CHECK-NEXT:}

// One accumulator through a nest of reductions and guards; a loop of one iteration disappears.
func.func private @conv(%x: memref<1x6xf32>, %w: memref<3x2xf32>, %out: memref<1x6xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.for %n = 0 to 1 {
    affine.for %i = 0 to 6 {
      %sum = affine.for %k = 0 to 3 iter_args(%acc = %zero) -> (f32) {
        %inside = "affine.if"(%i, %k) <{condition = affine_set<(d0, d1) : (d0 + d1 - 1 >= 0, 6 - d0 - d1 >= 0)>}> ({
          %inner = affine.for %c = 0 to 2 iter_args(%acc2 = %acc) -> (f32) {
            %xv = affine.load %x[%n, %i + %k - 1] : memref<1x6xf32>
            %wv = affine.load %w[%k, %c] : memref<3x2xf32>
            %p = arith.mulf %xv, %wv : f32
            %next = arith.addf %acc2, %p : f32
            affine.yield %next : f32
          }
          affine.yield %inner : f32
        }, {
          affine.yield %acc : f32
        }) : (index, index) -> f32
        affine.yield %inside : f32
      }
      affine.store %sum, %out[%n, %i] : memref<1x6xf32>
    }
  }
  func.return
}

//      CHECK:    for (int32_t i = 0; i < 6; ++i) {
// CHECK-NEXT:        const int32_t k_first = i <= 1 ? 1 - i : 0;
// CHECK-NEXT:        const int32_t k_end = i >= 4 ? 7 - i : 3;
// CHECK-NEXT:        float acc = 0.0f;
// CHECK-NEXT:        for (int32_t k = k_first; k < k_end; ++k) {
// CHECK-NEXT:            for (int32_t c = 0; c < 2; ++c) {
// CHECK-NEXT:                acc += x[i + k - 1] * w[2 * k + c];
// CHECK-NEXT:            }
// CHECK-NEXT:        }
// CHECK-NEXT:        out[i] = acc;
// CHECK-NEXT:    }

// Several accumulators: all new values are computed from the old ones.
func.func private @rotate(%x: memref<9xf32>, %out: memref<2xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %s, %t = affine.for %i = 0 to 9 iter_args(%a = %zero, %b = %one) -> (f32, f32) {
    %v = affine.load %x[%i] : memref<9xf32>
    %n = arith.addf %a, %v : f32
    affine.yield %b, %n : f32, f32
  }
  affine.store %s, %out[0] : memref<2xf32>
  affine.store %t, %out[1] : memref<2xf32>
  func.return
}

//      CHECK:    float a = 0.0f;
// CHECK-NEXT:    float b = 1.0f;
// CHECK-NEXT:    for (int32_t i = 0; i < 9; ++i) {
// CHECK-NEXT:        const float n = a + x[i];
// CHECK-NEXT:        a = b;
// CHECK-NEXT:        b = n;
// CHECK-NEXT:    }
// CHECK-NEXT:    out[0] = a;
// CHECK-NEXT:    out[1] = b;

// Short guards become conditional expressions; loads that a store may change come before it.
func.func private @guarded(%x: memref<4xf32>, %unused: memref<2xi1>, %out: memref<6xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 6 {
    %v = "affine.if"(%i) <{condition = affine_set<(d0) : (d0 - 1 >= 0, 4 - d0 >= 0)>}> ({
      %x1 = affine.load %x[%i - 1] : memref<4xf32>
      affine.yield %x1 : f32
    }, {
      affine.yield %zero : f32
    }) : (index) -> f32
    %old = affine.load %out[%i] : memref<6xf32>
    affine.store %v, %out[%i] : memref<6xf32>
    affine.store %old, %out[5 - %i] : memref<6xf32>
  }
  func.return
}

//      CHECK:    const uint8_t *restrict unused /* 2 */,
//      CHECK:    (void)unused;
// CHECK-NEXT:    for (int32_t i = 0; i < 6; ++i) {
// CHECK-NEXT:        const float old = out[i];
// CHECK-NEXT:        out[i] = i >= 1 && i <= 4 ? x[i - 1] : 0.0f;
// CHECK-NEXT:        out[5 - i] = old;
// CHECK-NEXT:    }
