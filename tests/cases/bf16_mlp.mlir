module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8xbf16> {poet.name = "p.0.b", tf.aliasing_output = 0 : i32}, %arg1: tensor<6x8xbf16> {poet.name = "p.0.w", tf.aliasing_output = 1 : i32}, %arg2: tensor<8xbf16> {poet.name = "p.1.b", tf.aliasing_output = 2 : i32}, %arg3: tensor<8x8xbf16> {poet.name = "p.1.w", tf.aliasing_output = 3 : i32}, %arg4: tensor<3xbf16> {poet.name = "p.2.b", tf.aliasing_output = 4 : i32}, %arg5: tensor<8x3xbf16> {poet.name = "p.2.w", tf.aliasing_output = 5 : i32}, %arg6: tensor<4x6xbf16> {poet.name = "x"}, %arg7: tensor<4xi32> {poet.name = "y"}) -> (tensor<8xbf16> {jax.result_info = "result[0][0]['b']"}, tensor<6x8xbf16> {jax.result_info = "result[0][0]['w']"}, tensor<8xbf16> {jax.result_info = "result[0][1]['b']"}, tensor<8x8xbf16> {jax.result_info = "result[0][1]['w']"}, tensor<3xbf16> {jax.result_info = "result[0][2]['b']"}, tensor<8x3xbf16> {jax.result_info = "result[0][2]['w']"}, tensor<f32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.dot_general %arg6, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x6xbf16>, tensor<6x8xbf16>) -> tensor<4x8xbf16>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<8xbf16>) -> tensor<1x8xbf16>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x8xbf16>) -> tensor<4x8xbf16>
    %3 = stablehlo.add %0, %2 : tensor<4x8xbf16>
    %4 = stablehlo.multiply %3, %3 : tensor<4x8xbf16>
    %5 = stablehlo.multiply %4, %3 : tensor<4x8xbf16>
    %6 = stablehlo.multiply %3, %3 : tensor<4x8xbf16>
    %cst = stablehlo.constant dense<3.000000e+00> : tensor<bf16>
    %7 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %8 = stablehlo.multiply %7, %6 : tensor<4x8xbf16>
    %cst_0 = stablehlo.constant dense<4.467770e-02> : tensor<bf16>
    %9 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %10 = stablehlo.multiply %9, %5 : tensor<4x8xbf16>
    %11 = stablehlo.add %3, %10 : tensor<4x8xbf16>
    %cst_1 = stablehlo.constant dense<7.968750e-01> : tensor<bf16>
    %12 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %13 = stablehlo.multiply %12, %11 : tensor<4x8xbf16>
    %14 = stablehlo.tanh %13 : tensor<4x8xbf16>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %15 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %16 = stablehlo.subtract %15, %14 : tensor<4x8xbf16>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %17 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %18 = stablehlo.add %17, %14 : tensor<4x8xbf16>
    %cst_4 = stablehlo.constant dense<5.000000e-01> : tensor<bf16>
    %19 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %20 = stablehlo.multiply %19, %18 : tensor<4x8xbf16>
    %21 = stablehlo.multiply %3, %20 : tensor<4x8xbf16>
    %22 = stablehlo.dot_general %21, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
    %23 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<8xbf16>) -> tensor<1x8xbf16>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1] : (tensor<1x8xbf16>) -> tensor<4x8xbf16>
    %25 = stablehlo.add %22, %24 : tensor<4x8xbf16>
    %26 = call @relu(%25) : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %27 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %28 = stablehlo.compare GT, %25, %27, FLOAT : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xi1>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %29 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %30 = stablehlo.dot_general %26, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x8xbf16>, tensor<8x3xbf16>) -> tensor<4x3xbf16>
    %31 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<3xbf16>) -> tensor<1x3xbf16>
    %32 = stablehlo.broadcast_in_dim %31, dims = [0, 1] : (tensor<1x3xbf16>) -> tensor<4x3xbf16>
    %33 = stablehlo.add %30, %32 : tensor<4x3xbf16>
    %34 = stablehlo.convert %33 : (tensor<4x3xbf16>) -> tensor<4x3xf32>
    %35:3 = call @log_softmax(%34) : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x1xf32>)
    %36 = stablehlo.broadcast_in_dim %arg7, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %37:2 = call @take_along_axis(%35#0, %36) : (tensor<4x3xf32>, tensor<4x1xi32>) -> (tensor<4x1xf32>, tensor<4x1x1xi32>)
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %38 = stablehlo.reduce(%37#0 init: %cst_7) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x1xf32>, tensor<f32>) -> tensor<f32>
    %cst_8 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %39 = stablehlo.divide %38, %cst_8 : tensor<f32>
    %40 = stablehlo.negate %39 : tensor<f32>
    %cst_9 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %41 = stablehlo.negate %cst_9 : tensor<f32>
    %cst_10 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %42 = stablehlo.divide %41, %cst_10 : tensor<f32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [] : (tensor<f32>) -> tensor<4x1xf32>
    %44 = call @take_along_axis_0(%37#1, %43) : (tensor<4x1x1xi32>, tensor<4x1xf32>) -> tensor<4x3xf32>
    %45 = call @log_softmax_1(%35#1, %35#2, %44) : (tensor<4x3xf32>, tensor<4x1xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
    %46 = stablehlo.convert %45 : (tensor<4x3xf32>) -> tensor<4x3xbf16>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %47 = stablehlo.reduce(%46 init: %cst_11) applies stablehlo.add across dimensions = [0] : (tensor<4x3xbf16>, tensor<bf16>) -> tensor<3xbf16>
    %48 = stablehlo.reshape %47 : (tensor<3xbf16>) -> tensor<1x3xbf16>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %49 = stablehlo.reduce(%48 init: %cst_12) applies stablehlo.add across dimensions = [0] : (tensor<1x3xbf16>, tensor<bf16>) -> tensor<3xbf16>
    %50 = stablehlo.dot_general %46, %26, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x3xbf16>, tensor<4x8xbf16>) -> tensor<3x8xbf16>
    %51 = stablehlo.transpose %50, dims = [1, 0] : (tensor<3x8xbf16>) -> tensor<8x3xbf16>
    %52 = stablehlo.dot_general %46, %arg5, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x3xbf16>, tensor<8x3xbf16>) -> tensor<4x8xbf16>
    %cst_13 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %53 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %54 = stablehlo.select %28, %52, %53 : tensor<4x8xi1>, tensor<4x8xbf16>
    %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %55 = stablehlo.reduce(%54 init: %cst_14) applies stablehlo.add across dimensions = [0] : (tensor<4x8xbf16>, tensor<bf16>) -> tensor<8xbf16>
    %56 = stablehlo.reshape %55 : (tensor<8xbf16>) -> tensor<1x8xbf16>
    %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %57 = stablehlo.reduce(%56 init: %cst_15) applies stablehlo.add across dimensions = [0] : (tensor<1x8xbf16>, tensor<bf16>) -> tensor<8xbf16>
    %58 = stablehlo.dot_general %54, %21, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xbf16>
    %59 = stablehlo.transpose %58, dims = [1, 0] : (tensor<8x8xbf16>) -> tensor<8x8xbf16>
    %60 = stablehlo.dot_general %54, %arg3, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
    %61 = stablehlo.multiply %3, %60 : tensor<4x8xbf16>
    %62 = stablehlo.multiply %60, %20 : tensor<4x8xbf16>
    %cst_16 = stablehlo.constant dense<5.000000e-01> : tensor<bf16>
    %63 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %64 = stablehlo.multiply %63, %61 : tensor<4x8xbf16>
    %65 = stablehlo.multiply %64, %16 : tensor<4x8xbf16>
    %66 = stablehlo.multiply %65, %14 : tensor<4x8xbf16>
    %67 = stablehlo.add %65, %66 : tensor<4x8xbf16>
    %cst_17 = stablehlo.constant dense<7.968750e-01> : tensor<bf16>
    %68 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %69 = stablehlo.multiply %68, %67 : tensor<4x8xbf16>
    %70 = stablehlo.add %62, %69 : tensor<4x8xbf16>
    %cst_18 = stablehlo.constant dense<4.467770e-02> : tensor<bf16>
    %71 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %72 = stablehlo.multiply %71, %69 : tensor<4x8xbf16>
    %73 = stablehlo.multiply %72, %8 : tensor<4x8xbf16>
    %74 = stablehlo.add %70, %73 : tensor<4x8xbf16>
    %cst_19 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %75 = stablehlo.reduce(%74 init: %cst_19) applies stablehlo.add across dimensions = [0] : (tensor<4x8xbf16>, tensor<bf16>) -> tensor<8xbf16>
    %76 = stablehlo.reshape %75 : (tensor<8xbf16>) -> tensor<1x8xbf16>
    %cst_20 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %77 = stablehlo.reduce(%76 init: %cst_20) applies stablehlo.add across dimensions = [0] : (tensor<1x8xbf16>, tensor<bf16>) -> tensor<8xbf16>
    %78 = stablehlo.dot_general %74, %arg6, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x8xbf16>, tensor<4x6xbf16>) -> tensor<8x6xbf16>
    %79 = stablehlo.transpose %78, dims = [1, 0] : (tensor<8x6xbf16>) -> tensor<6x8xbf16>
    %cst_21 = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %80 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<bf16>) -> tensor<8xbf16>
    %81 = stablehlo.multiply %80, %77 : tensor<8xbf16>
    %82 = stablehlo.subtract %arg0, %81 : tensor<8xbf16>
    %cst_22 = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %83 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<bf16>) -> tensor<6x8xbf16>
    %84 = stablehlo.multiply %83, %79 : tensor<6x8xbf16>
    %85 = stablehlo.subtract %arg1, %84 : tensor<6x8xbf16>
    %cst_23 = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %86 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<bf16>) -> tensor<8xbf16>
    %87 = stablehlo.multiply %86, %57 : tensor<8xbf16>
    %88 = stablehlo.subtract %arg2, %87 : tensor<8xbf16>
    %cst_24 = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %89 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<bf16>) -> tensor<8x8xbf16>
    %90 = stablehlo.multiply %89, %59 : tensor<8x8xbf16>
    %91 = stablehlo.subtract %arg3, %90 : tensor<8x8xbf16>
    %cst_25 = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %92 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<bf16>) -> tensor<3xbf16>
    %93 = stablehlo.multiply %92, %49 : tensor<3xbf16>
    %94 = stablehlo.subtract %arg4, %93 : tensor<3xbf16>
    %cst_26 = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %95 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<bf16>) -> tensor<8x3xbf16>
    %96 = stablehlo.multiply %95, %51 : tensor<8x3xbf16>
    %97 = stablehlo.subtract %arg5, %96 : tensor<8x3xbf16>
    return %82, %85, %88, %91, %94, %97, %40 : tensor<8xbf16>, tensor<6x8xbf16>, tensor<8xbf16>, tensor<8x8xbf16>, tensor<3xbf16>, tensor<8x3xbf16>, tensor<f32>
  }
  func.func private @relu(%arg0: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<4x8xbf16>
    %1 = stablehlo.maximum %arg0, %0 : tensor<4x8xbf16>
    return %1 : tensor<4x8xbf16>
  }
  func.func private @log_softmax(%arg0: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<4xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<4xf32>) -> tensor<4x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x3xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<4x3xf32>
    %6 = stablehlo.exponential %5 : tensor<4x3xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<4xf32>) -> tensor<4x1xf32>
    %9 = stablehlo.log %8 : tensor<4x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x3xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<4x3xf32>
    return %11, %6, %8 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x1xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<4x3xf32>, %arg1: tensor<4x1xi32>) -> (tensor<4x1xf32>, tensor<4x1x1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x1xi1>
    %c_0 = stablehlo.constant dense<3> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<4x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<4x1xi1>, tensor<4x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<4x1xi32>) -> tensor<4x1x1xi32>
    %c_1 = stablehlo.constant dense<2> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<4x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<4x1x1xi32>, tensor<4x1x1xi32>) -> tensor<4x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [2] : (tensor<1xi32>) -> tensor<1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x1xi32>) -> tensor<4x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<4x1x1xi32>, tensor<4x1x1xi32>) -> tensor<4x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<4x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [2] : (tensor<4x1x1xi1>, tensor<i1>) -> tensor<4x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<4x3xf32>, tensor<4x1x1xi32>) -> tensor<4x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<4x1xi1>, tensor<4x1xf32>
    return %15, %5 : tensor<4x1xf32>, tensor<4x1x1xi32>
  }
  func.func private @take_along_axis_0(%arg0: tensor<4x1x1xi32>, %arg1: tensor<4x1xf32>) -> tensor<4x3xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<4x3xf32>, tensor<4x1x1xi32>, tensor<4x1xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
  func.func private @log_softmax_1(%arg0: tensor<4x3xf32>, %arg1: tensor<4x1xf32>, %arg2: tensor<4x3xf32>) -> tensor<4x3xf32> {
    %0 = stablehlo.negate %arg2 : tensor<4x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.reshape %1 : (tensor<4xf32>) -> tensor<4x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<4x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<4x1xf32>, tensor<f32>) -> tensor<4xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<4x3xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<4x3xf32>
    return %7 : tensor<4x3xf32>
  }
}
