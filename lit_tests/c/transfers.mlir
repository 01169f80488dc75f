// RUN: xdsl-opt %s -p poet-verify -t c | filecheck %s

// Transfers in two halves. Of those under way at once each has its own `poetc_transfer`; a step that
// fails waits for all of them before it returns.

// CHECK:       /* ---- model.c ---- */
// CHECK:       poetc_status model_step(poetc_store *store)
// CHECK-NEXT:  {
// CHECK-NEXT:      const poetc_status checked = model_check();
// CHECK-NEXT:      if (checked != POETC_OK) {
// CHECK-NEXT:          return checked;
// CHECK-NEXT:      }
// CHECK-NEXT:      poetc_transfer transfer[2];
// CHECK-NEXT:      poetc_transfers_init(transfer, 2);
// CHECK-NEXT:      poetc_status status;
// CHECK:           model_kernel_double(at(0), at(32));
// CHECK-NEXT:      /* poet.free %x */
// CHECK-EMPTY:
// CHECK-NEXT:      /* %s = poet.pageout_start %y */
// CHECK-NEXT:      status = poetc_page_out_start(store, &transfer[0], 0u, at(32), 32, 0);
// CHECK-NEXT:      if (status != POETC_OK) {
// CHECK-NEXT:          goto failed;
// CHECK-NEXT:      }
// CHECK:           model_kernel_double(at(32), at(64));
// CHECK-EMPTY:
// CHECK-NEXT:      /* %t = poet.pageout_start %z */
// CHECK-NEXT:      status = poetc_page_out_start(store, &transfer[1], 36u, at(64), 32, 0);
// CHECK:           /* %p = poet.wait %s */
// CHECK-NEXT:      status = poetc_page_wait(store, &transfer[0]);
// CHECK-NEXT:      if (status != POETC_OK) {
// CHECK-NEXT:          goto failed;
// CHECK-NEXT:      }
// CHECK-NEXT:      /* poet.free %y */
// CHECK:           /* %u = poet.pagein_start %p */
// CHECK-NEXT:      status = poetc_page_in_start(store, &transfer[0], 0u, at(32), 32, 0);
// CHECK:           status = poetc_page_wait(store, &transfer[1]);
// CHECK:           /* %y2 = poet.wait %u */
// CHECK-NEXT:      status = poetc_page_wait(store, &transfer[0]);
// CHECK:           return POETC_OK;
// CHECK-EMPTY:
// CHECK-NEXT:  failed:
// CHECK-NEXT:      /* Nothing uses the arena any more when the step is over. */
// CHECK-NEXT:      return poetc_pages_abandon(store, transfer, 2, status);
// CHECK-NEXT:  }

poet.graph @main(%x: tensor<8xf32> {poet.offset = 0 : i64}) -> (tensor<8xf32>)
    attributes {schedule = {}, ram = 96 : i64, arena_bytes = 96 : i64, storage_bytes = 72 : i64} {
  %y = poet.compute "double" (%a = %x : tensor<8xf32>) -> tensor<8xf32> kernel @double offsets [32] {
    %r = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  poet.free %x : tensor<8xf32>
  %s = poet.pageout_start %y offset 0 : tensor<8xf32> -> !poet.transfer<!poet.page<tensor<8xf32>>>
  %z = poet.compute "double" (%a = %y : tensor<8xf32>) -> tensor<8xf32> kernel @double offsets [64] {
    %r = stablehlo.add %a, %a : tensor<8xf32>
    poet.yield %r : tensor<8xf32>
  }
  %t = poet.pageout_start %z offset 36 : tensor<8xf32> -> !poet.transfer<!poet.page<tensor<8xf32>>>
  %p = poet.wait %s : !poet.transfer<!poet.page<tensor<8xf32>>> -> !poet.page<tensor<8xf32>>
  poet.free %y : tensor<8xf32>
  %u = poet.pagein_start %p offset 32 : !poet.page<tensor<8xf32>> -> !poet.transfer<tensor<8xf32>>
  %q = poet.wait %t : !poet.transfer<!poet.page<tensor<8xf32>>> -> !poet.page<tensor<8xf32>>
  poet.free %z : tensor<8xf32>
  %y2 = poet.wait %u : !poet.transfer<tensor<8xf32>> -> tensor<8xf32>
  poet.return %y2 : tensor<8xf32>
}

func.func private @double(%in0: memref<8xf32>, %out0: memref<8xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 8 {
    %v = affine.load %in0[%i] : memref<8xf32>
    %s = arith.addf %v, %v : f32
    affine.store %s, %out0[%i] : memref<8xf32>
  }
  func.return
}
