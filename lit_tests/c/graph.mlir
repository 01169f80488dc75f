// RUN: xdsl-opt %s -t c | filecheck %s

// A call, a page-out and a page-in for each operation of the graph, at the planned offsets.
poet.graph @main(
    %x: tensor<8xf32> {poet.role = "input", poet.name = "x", poet.offset = 0 : i64},
    %w: tensor<8xf32> {poet.role = "param", poet.updates = 0 : i64, poet.name = "w", poet.offset = 32 : i64}
) -> (tensor<8xf32>) attributes {arena_bytes = 96 : i64, storage_bytes = 36 : i64} {
  %y = poet.compute "double" (%a = %x : tensor<8xf32>) -> tensor<8xf32> kernel @double offsets [64] {
    %s = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  %p = poet.pageout %y offset 0 : tensor<8xf32> -> !poet.page<tensor<8xf32>>
  poet.free %y : tensor<8xf32>
  %z = poet.compute "double" (%a = %x : tensor<8xf32>) -> tensor<8xf32> kernel @double inplace [[0, 0]] offsets [0] {
    %s = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  poet.free %z : tensor<8xf32>
  %y2 = poet.pagein %p offset 64 : !poet.page<tensor<8xf32>> -> tensor<8xf32>
  %w2 = poet.compute "subtract" (%a = %w : tensor<8xf32>, %b = %y2 : tensor<8xf32>) -> tensor<8xf32> kernel @subtract inplace [[0, 0]] offsets [32] {
    %s = stablehlo.subtract %a, %b : tensor<8xf32>
    poet.yield %s : tensor<8xf32>
  }
  poet.free %y2 : tensor<8xf32>
  poet.return %w2 : tensor<8xf32>
}

func.func private @double(%in0: memref<8xf32>, %out0: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %v = affine.load %in0[%i] : memref<8xf32>
    %s = arith.addf %v, %v : f32
    affine.store %s, %out0[%i] : memref<8xf32>
  }
  func.return
}

func.func private @subtract(%in0: memref<8xf32>, %in1: memref<8xf32>, %out0: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %v = affine.load %in0[%i] : memref<8xf32>
    %w = affine.load %in1[%i] : memref<8xf32>
    %s = arith.subf %v, %w : f32
    affine.store %s, %out0[%i] : memref<8xf32>
  }
  func.return
}

// CHECK:       /* ---- model.h ---- */
// CHECK:       #define MODEL_ARENA_BYTES     96
// CHECK-NEXT:  #define MODEL_ARENA_ALIGNMENT 4u
// CHECK-NEXT:  #define MODEL_STATIC_BYTES    32
// CHECK-NEXT:  #define MODEL_STACK_BYTES     1024
// CHECK-NEXT:  #define MODEL_RAM_BYTES       1152
// CHECK-NEXT:  #define MODEL_STORAGE_BYTES   36
// CHECK:       /* Argument 1: w, float 8, parameter */
// CHECK-NEXT:  #define MODEL_ARG_W       1
// CHECK-NEXT:  #define MODEL_ARG1_OFFSET 32
// CHECK-NEXT:  #define MODEL_ARG1_BYTES  32
// CHECK:       /* Result 0: out0, float 8, new value of argument 1 */

// CHECK:       /* ---- model.c ---- */
// CHECK:       poetc_status model_step(poetc_store *store)
// CHECK-NEXT:  {
// CHECK-NEXT:      const poetc_status checked = model_check();
// CHECK-NEXT:      if (checked != POETC_OK) {
// CHECK-NEXT:          return checked;
// CHECK-NEXT:      }
// CHECK-NEXT:      poetc_status status;
// CHECK-EMPTY:
// CHECK-NEXT:      /* %y = poet.compute "double" (%x) */
// CHECK-NEXT:      BEFORE(0);
// CHECK-NEXT:      model_kernel_double(at(0), at(64));
// CHECK-EMPTY:
// CHECK-NEXT:      /* %p = poet.pageout %y */
// CHECK-NEXT:      status = poetc_page_out(store, 0u, at(64), 32);
// CHECK-NEXT:      if (status != POETC_OK) {
// CHECK-NEXT:          return status;
// CHECK-NEXT:      }
// CHECK-NEXT:      /* poet.free %y */
// CHECK-EMPTY:
// CHECK-NEXT:      /* %z = poet.compute "double" (%x), %z in place of %x */
// CHECK-NEXT:      BEFORE(1);
// CHECK-NEXT:      model_kernel_double(at(0), at(0));
// CHECK-NEXT:      /* poet.free %z */
// CHECK-EMPTY:
// CHECK-NEXT:      /* %y2 = poet.pagein %p */
// CHECK-NEXT:      status = poetc_page_in(store, 0u, at(64), 32);
// CHECK-NEXT:      if (status != POETC_OK) {
// CHECK-NEXT:          return status;
// CHECK-NEXT:      }
// CHECK-EMPTY:
// CHECK-NEXT:      /* %w2 = poet.compute "subtract" (%w, %y2), %w2 in place of %w */
// CHECK-NEXT:      BEFORE(2);
// CHECK-NEXT:      model_kernel_subtract(at(32), at(64), at(32));
// CHECK-NEXT:      /* poet.free %y2 */
// CHECK-EMPTY:
// CHECK-NEXT:      /* poet.return %w2 */
// CHECK-EMPTY:
// CHECK-NEXT:      BEFORE(3);
// CHECK-NEXT:      return POETC_OK;
// CHECK-NEXT:  }

// One function for equal computes; no restrict where a call is in place.
// CHECK:       /* ---- model_kernels.c ---- */
// CHECK:       /* "double" of %y, %z
// CHECK-NEXT:   * from stablehlo.add
// CHECK:       void model_kernel_double(const float *in0 /* 8 */, float *out0 /* 8 */)
// CHECK:               const float v = in0[i];
// CHECK-NEXT:          out0[i] = v + v;
// CHECK:       const float *in0 /* 8 */,
// CHECK-NEXT:  const float *restrict in1 /* 8 */,
// CHECK-NEXT:  float *out0 /* 8 */)
