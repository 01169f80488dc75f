// RUN: xdsl-opt %s -t c | filecheck %s --match-full-lines --strict-whitespace

// Subscripts are flat and simplified with the bounds of the loops and with guards.
func.func private @subscripts(%x: memref<4x6xf32>, %out: memref<24xf32>) {
  affine.for %i = 0 to 24 {
    %v = affine.load %x[%i floordiv 6, %i mod 6] : memref<4x6xf32>
    affine.store %v, %out[%i] : memref<24xf32>
  }
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 6 {
      %v = affine.load %x[(%i * 6 + %j) floordiv 6, (%j + 12) mod 6] : memref<4x6xf32>
      affine.store %v, %out[%i + %j * 4] : memref<24xf32>
    }
  }
  affine.for %i = 0 to 24 {
    %v = affine.load %x[%i mod 4, %i floordiv 4] : memref<4x6xf32>
    affine.store %v, %out[23 - %i] : memref<24xf32>
  }
  func.return
}

// CHECK:        out[i] = x[i];
// CHECK:            out[i + 4 * j] = x[6 * i + j];
// CHECK:        out[23 - i] = x[6 * (i % 4) + i / 4];

// C's division rounds towards zero. Where the dividend may be negative, a multiple is added first;
// a guard that excludes it makes this unnecessary.
func.func private @negative(%x: memref<6xf32>, %out: memref<10xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 10 {
    affine.for %k = 0 to 3 {
      %v = "affine.if"(%i, %k) <{condition = affine_set<(d0, d1) : ((d0 - d1) mod 2 == 0, d0 - d1 >= 0)>}> ({
        %x1 = affine.load %x[(%i - %k) floordiv 2] : memref<6xf32>
        affine.yield %x1 : f32
      }, {
        %x2 = affine.load %x[(%i - %k) floordiv 2 + 1] : memref<6xf32>
        affine.yield %x2 : f32
      }) : (index, index) -> f32
      affine.store %v, %out[%i] : memref<10xf32>
    }
  }
  func.return
}

// CHECK:            out[i] = (i - k + 2) % 2 == 0 && i >= k ? x[(i - k) / 2] : x[(i - k + 2) / 2];

// Guards that always hold disappear; two inequalities become an equation.
func.func private @guards(%x: memref<8xf32>, %out: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    "affine.if"(%i) <{condition = affine_set<(d0) : (d0 >= 0, 7 - d0 >= 0)>}> ({
      %v = affine.load %x[%i] : memref<8xf32>
      affine.store %v, %out[%i] : memref<8xf32>
      affine.yield
    }, {
    }) : (index) -> ()
    "affine.if"(%i) <{condition = affine_set<(d0) : (d0 - 3 >= 0, 3 - d0 >= 0)>}> ({
      %v = affine.load %x[0] : memref<8xf32>
      affine.store %v, %out[%i] : memref<8xf32>
      affine.yield
    }, {
    }) : (index) -> ()
  }
  func.return
}

//      CHECK:    for (int32_t i = 0; i < 8; ++i) {
// CHECK-NEXT:        out[i] = x[i];
// CHECK-NEXT:        if (i == 3) {
// CHECK-NEXT:            out[i] = x[0];
// CHECK-NEXT:        }
// CHECK-NEXT:    }

// Indices that are data.
func.func private @gather(%x: memref<16x4xf32>, %at: memref<3xi32>, %out: memref<3x4xf32>) {
  affine.for %i = 0 to 3 {
    %row = affine.load %at[%i] : memref<3xi32>
    %r = arith.index_cast %row : i32 to index
    affine.for %j = 0 to 4 {
      %v = memref.load %x[%r, %j] : memref<16x4xf32>
      affine.store %v, %out[%i, %j] : memref<3x4xf32>
    }
  }
  func.return
}

//      CHECK:        const int32_t r = at[i];
// CHECK-NEXT:        for (int32_t j = 0; j < 4; ++j) {
// CHECK-NEXT:            out[4 * i + j] = x[4 * r + j];
// CHECK-NEXT:        }
