// RUN: xdsl-opt %s -p stablehlo-simplify | filecheck %s

// CHLO becomes StableHLO.

// CHECK-LABEL: func.func public @square(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %r = stablehlo.multiply %x, %x : tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @square(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = chlo.square %x : tensor<4xf32> -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @erf(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.abs %x : tensor<4xf32>
// CHECK-NEXT:    %1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %3 = stablehlo.constant dense<1.050000e+01> : tensor<f32>
// CHECK-NEXT:    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %5 = stablehlo.minimum %0, %4 : tensor<4xf32>
// CHECK-NEXT:    %6 = stablehlo.multiply %5, %5 : tensor<4xf32>
// CHECK-NEXT:    %7 = stablehlo.constant dense<4.097000e+03> : tensor<f32>
// CHECK-NEXT:    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %9 = stablehlo.multiply %5, %8 : tensor<4xf32>
// CHECK-NEXT:    %10 = stablehlo.subtract %9, %5 : tensor<4xf32>
// CHECK-NEXT:    %11 = stablehlo.subtract %9, %10 : tensor<4xf32>
// CHECK-NEXT:    %12 = stablehlo.subtract %5, %11 : tensor<4xf32>
// CHECK-NEXT:    %13 = stablehlo.multiply %11, %12 : tensor<4xf32>
// CHECK-NEXT:    %14 = stablehlo.multiply %11, %11 : tensor<4xf32>
// CHECK-NEXT:    %15 = stablehlo.subtract %14, %6 : tensor<4xf32>
// CHECK-NEXT:    %16 = stablehlo.add %13, %13 : tensor<4xf32>
// CHECK-NEXT:    %17 = stablehlo.add %15, %16 : tensor<4xf32>
// CHECK-NEXT:    %18 = stablehlo.multiply %12, %12 : tensor<4xf32>
// CHECK-NEXT:    %19 = stablehlo.add %17, %18 : tensor<4xf32>
// CHECK-NEXT:    %20 = stablehlo.negate %6 : tensor<4xf32>
// CHECK-NEXT:    %21 = stablehlo.exponential %20 : tensor<4xf32>
// CHECK-NEXT:    %22 = stablehlo.multiply %21, %19 : tensor<4xf32>
// CHECK-NEXT:    %23 = stablehlo.subtract %21, %22 : tensor<4xf32>
// CHECK-NEXT:    %24 = stablehlo.divide %2, %5 : tensor<4xf32>
// CHECK-NEXT:    %25 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:    %26 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %27 = stablehlo.compare LT, %5, %26, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    %28 = stablehlo.constant dense<2.326820e-02> : tensor<f32>
// CHECK-NEXT:    %29 = stablehlo.broadcast_in_dim %28, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %31 = stablehlo.broadcast_in_dim %30, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %32 = stablehlo.select %27, %29, %31 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %33 = stablehlo.constant dense<-0.138703942> : tensor<f32>
// CHECK-NEXT:    %34 = stablehlo.broadcast_in_dim %33, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %35 = stablehlo.constant dense<-10.477664> : tensor<f32>
// CHECK-NEXT:    %36 = stablehlo.broadcast_in_dim %35, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %37 = stablehlo.select %27, %34, %36 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %38 = stablehlo.constant dense<0.368742466> : tensor<f32>
// CHECK-NEXT:    %39 = stablehlo.broadcast_in_dim %38, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %40 = stablehlo.constant dense<1.297720e+01> : tensor<f32>
// CHECK-NEXT:    %41 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %42 = stablehlo.select %27, %39, %41 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %43 = stablehlo.constant dense<-0.582473278> : tensor<f32>
// CHECK-NEXT:    %44 = stablehlo.broadcast_in_dim %43, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %45 = stablehlo.constant dense<-7.49551868> : tensor<f32>
// CHECK-NEXT:    %46 = stablehlo.broadcast_in_dim %45, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %47 = stablehlo.select %27, %44, %46 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %48 = stablehlo.constant dense<0.621000469> : tensor<f32>
// CHECK-NEXT:    %49 = stablehlo.broadcast_in_dim %48, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %50 = stablehlo.constant dense<2.92101908> : tensor<f32>
// CHECK-NEXT:    %51 = stablehlo.broadcast_in_dim %50, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %52 = stablehlo.select %27, %49, %51 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %53 = stablehlo.constant dense<-0.494451523> : tensor<f32>
// CHECK-NEXT:    %54 = stablehlo.broadcast_in_dim %53, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %55 = stablehlo.constant dense<-1.01526523> : tensor<f32>
// CHECK-NEXT:    %56 = stablehlo.broadcast_in_dim %55, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %57 = stablehlo.select %27, %54, %56 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %58 = stablehlo.constant dense<3.404880e-01> : tensor<f32>
// CHECK-NEXT:    %59 = stablehlo.broadcast_in_dim %58, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %60 = stablehlo.constant dense<0.42184633> : tensor<f32>
// CHECK-NEXT:    %61 = stablehlo.broadcast_in_dim %60, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %62 = stablehlo.select %27, %59, %61 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %63 = stablehlo.constant dense<-0.274112701> : tensor<f32>
// CHECK-NEXT:    %64 = stablehlo.broadcast_in_dim %63, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %65 = stablehlo.constant dense<-0.282076746> : tensor<f32>
// CHECK-NEXT:    %66 = stablehlo.broadcast_in_dim %65, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %67 = stablehlo.select %27, %64, %66 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %68 = stablehlo.constant dense<0.563825965> : tensor<f32>
// CHECK-NEXT:    %69 = stablehlo.broadcast_in_dim %68, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %70 = stablehlo.constant dense<0.564189494> : tensor<f32>
// CHECK-NEXT:    %71 = stablehlo.broadcast_in_dim %70, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %72 = stablehlo.select %27, %69, %71 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %73 = stablehlo.multiply %24, %24 : tensor<4xf32>
// CHECK-NEXT:    %74 = stablehlo.multiply %32, %73 : tensor<4xf32>
// CHECK-NEXT:    %75 = stablehlo.add %74, %37 : tensor<4xf32>
// CHECK-NEXT:    %76 = stablehlo.multiply %75, %73 : tensor<4xf32>
// CHECK-NEXT:    %77 = stablehlo.add %76, %42 : tensor<4xf32>
// CHECK-NEXT:    %78 = stablehlo.multiply %77, %73 : tensor<4xf32>
// CHECK-NEXT:    %79 = stablehlo.add %78, %47 : tensor<4xf32>
// CHECK-NEXT:    %80 = stablehlo.multiply %79, %73 : tensor<4xf32>
// CHECK-NEXT:    %81 = stablehlo.add %80, %52 : tensor<4xf32>
// CHECK-NEXT:    %82 = stablehlo.multiply %81, %73 : tensor<4xf32>
// CHECK-NEXT:    %83 = stablehlo.add %82, %57 : tensor<4xf32>
// CHECK-NEXT:    %84 = stablehlo.multiply %83, %73 : tensor<4xf32>
// CHECK-NEXT:    %85 = stablehlo.add %84, %62 : tensor<4xf32>
// CHECK-NEXT:    %86 = stablehlo.multiply %85, %73 : tensor<4xf32>
// CHECK-NEXT:    %87 = stablehlo.add %86, %67 : tensor<4xf32>
// CHECK-NEXT:    %88 = stablehlo.multiply %87, %73 : tensor<4xf32>
// CHECK-NEXT:    %89 = stablehlo.add %88, %72 : tensor<4xf32>
// CHECK-NEXT:    %90 = stablehlo.multiply %23, %24 : tensor<4xf32>
// CHECK-NEXT:    %91 = stablehlo.multiply %90, %89 : tensor<4xf32>
// CHECK-NEXT:    %92 = stablehlo.subtract %2, %91 : tensor<4xf32>
// CHECK-NEXT:    %93 = stablehlo.compare LT, %x, %31, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    %94 = stablehlo.negate %92 : tensor<4xf32>
// CHECK-NEXT:    %95 = stablehlo.select %93, %94, %92 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %96 = stablehlo.constant dense<7.85386146e-05> : tensor<f32>
// CHECK-NEXT:    %97 = stablehlo.broadcast_in_dim %96, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %98 = stablehlo.constant dense<-0.000801019371> : tensor<f32>
// CHECK-NEXT:    %99 = stablehlo.broadcast_in_dim %98, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %100 = stablehlo.constant dense<0.00518832775> : tensor<f32>
// CHECK-NEXT:    %101 = stablehlo.broadcast_in_dim %100, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %102 = stablehlo.constant dense<-0.0268538129> : tensor<f32>
// CHECK-NEXT:    %103 = stablehlo.broadcast_in_dim %102, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %104 = stablehlo.constant dense<0.112835854> : tensor<f32>
// CHECK-NEXT:    %105 = stablehlo.broadcast_in_dim %104, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %106 = stablehlo.constant dense<-0.37612626> : tensor<f32>
// CHECK-NEXT:    %107 = stablehlo.broadcast_in_dim %106, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %108 = stablehlo.constant dense<0.128379166> : tensor<f32>
// CHECK-NEXT:    %109 = stablehlo.broadcast_in_dim %108, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %110 = stablehlo.multiply %x, %x : tensor<4xf32>
// CHECK-NEXT:    %111 = stablehlo.multiply %110, %97 : tensor<4xf32>
// CHECK-NEXT:    %112 = stablehlo.add %111, %99 : tensor<4xf32>
// CHECK-NEXT:    %113 = stablehlo.multiply %112, %110 : tensor<4xf32>
// CHECK-NEXT:    %114 = stablehlo.add %113, %101 : tensor<4xf32>
// CHECK-NEXT:    %115 = stablehlo.multiply %114, %110 : tensor<4xf32>
// CHECK-NEXT:    %116 = stablehlo.add %115, %103 : tensor<4xf32>
// CHECK-NEXT:    %117 = stablehlo.multiply %116, %110 : tensor<4xf32>
// CHECK-NEXT:    %118 = stablehlo.add %117, %105 : tensor<4xf32>
// CHECK-NEXT:    %119 = stablehlo.multiply %118, %110 : tensor<4xf32>
// CHECK-NEXT:    %120 = stablehlo.add %119, %107 : tensor<4xf32>
// CHECK-NEXT:    %121 = stablehlo.multiply %120, %110 : tensor<4xf32>
// CHECK-NEXT:    %122 = stablehlo.add %121, %109 : tensor<4xf32>
// CHECK-NEXT:    %123 = stablehlo.multiply %x, %122 : tensor<4xf32>
// CHECK-NEXT:    %124 = stablehlo.add %x, %123 : tensor<4xf32>
// CHECK-NEXT:    %125 = stablehlo.compare LT, %0, %2, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    %r = stablehlo.select %125, %124, %95 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @erf(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func public @erfc(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:    %0 = stablehlo.abs %x : tensor<4xf32>
// CHECK-NEXT:    %1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %3 = stablehlo.constant dense<1.050000e+01> : tensor<f32>
// CHECK-NEXT:    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %5 = stablehlo.minimum %0, %4 : tensor<4xf32>
// CHECK-NEXT:    %6 = stablehlo.multiply %5, %5 : tensor<4xf32>
// CHECK-NEXT:    %7 = stablehlo.constant dense<4.097000e+03> : tensor<f32>
// CHECK-NEXT:    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %9 = stablehlo.multiply %5, %8 : tensor<4xf32>
// CHECK-NEXT:    %10 = stablehlo.subtract %9, %5 : tensor<4xf32>
// CHECK-NEXT:    %11 = stablehlo.subtract %9, %10 : tensor<4xf32>
// CHECK-NEXT:    %12 = stablehlo.subtract %5, %11 : tensor<4xf32>
// CHECK-NEXT:    %13 = stablehlo.multiply %11, %12 : tensor<4xf32>
// CHECK-NEXT:    %14 = stablehlo.multiply %11, %11 : tensor<4xf32>
// CHECK-NEXT:    %15 = stablehlo.subtract %14, %6 : tensor<4xf32>
// CHECK-NEXT:    %16 = stablehlo.add %13, %13 : tensor<4xf32>
// CHECK-NEXT:    %17 = stablehlo.add %15, %16 : tensor<4xf32>
// CHECK-NEXT:    %18 = stablehlo.multiply %12, %12 : tensor<4xf32>
// CHECK-NEXT:    %19 = stablehlo.add %17, %18 : tensor<4xf32>
// CHECK-NEXT:    %20 = stablehlo.negate %6 : tensor<4xf32>
// CHECK-NEXT:    %21 = stablehlo.exponential %20 : tensor<4xf32>
// CHECK-NEXT:    %22 = stablehlo.multiply %21, %19 : tensor<4xf32>
// CHECK-NEXT:    %23 = stablehlo.subtract %21, %22 : tensor<4xf32>
// CHECK-NEXT:    %24 = stablehlo.divide %2, %5 : tensor<4xf32>
// CHECK-NEXT:    %25 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:    %26 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %27 = stablehlo.compare LT, %5, %26, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    %28 = stablehlo.constant dense<2.326820e-02> : tensor<f32>
// CHECK-NEXT:    %29 = stablehlo.broadcast_in_dim %28, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %31 = stablehlo.broadcast_in_dim %30, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %32 = stablehlo.select %27, %29, %31 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %33 = stablehlo.constant dense<-0.138703942> : tensor<f32>
// CHECK-NEXT:    %34 = stablehlo.broadcast_in_dim %33, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %35 = stablehlo.constant dense<-10.477664> : tensor<f32>
// CHECK-NEXT:    %36 = stablehlo.broadcast_in_dim %35, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %37 = stablehlo.select %27, %34, %36 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %38 = stablehlo.constant dense<0.368742466> : tensor<f32>
// CHECK-NEXT:    %39 = stablehlo.broadcast_in_dim %38, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %40 = stablehlo.constant dense<1.297720e+01> : tensor<f32>
// CHECK-NEXT:    %41 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %42 = stablehlo.select %27, %39, %41 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %43 = stablehlo.constant dense<-0.582473278> : tensor<f32>
// CHECK-NEXT:    %44 = stablehlo.broadcast_in_dim %43, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %45 = stablehlo.constant dense<-7.49551868> : tensor<f32>
// CHECK-NEXT:    %46 = stablehlo.broadcast_in_dim %45, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %47 = stablehlo.select %27, %44, %46 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %48 = stablehlo.constant dense<0.621000469> : tensor<f32>
// CHECK-NEXT:    %49 = stablehlo.broadcast_in_dim %48, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %50 = stablehlo.constant dense<2.92101908> : tensor<f32>
// CHECK-NEXT:    %51 = stablehlo.broadcast_in_dim %50, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %52 = stablehlo.select %27, %49, %51 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %53 = stablehlo.constant dense<-0.494451523> : tensor<f32>
// CHECK-NEXT:    %54 = stablehlo.broadcast_in_dim %53, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %55 = stablehlo.constant dense<-1.01526523> : tensor<f32>
// CHECK-NEXT:    %56 = stablehlo.broadcast_in_dim %55, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %57 = stablehlo.select %27, %54, %56 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %58 = stablehlo.constant dense<3.404880e-01> : tensor<f32>
// CHECK-NEXT:    %59 = stablehlo.broadcast_in_dim %58, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %60 = stablehlo.constant dense<0.42184633> : tensor<f32>
// CHECK-NEXT:    %61 = stablehlo.broadcast_in_dim %60, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %62 = stablehlo.select %27, %59, %61 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %63 = stablehlo.constant dense<-0.274112701> : tensor<f32>
// CHECK-NEXT:    %64 = stablehlo.broadcast_in_dim %63, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %65 = stablehlo.constant dense<-0.282076746> : tensor<f32>
// CHECK-NEXT:    %66 = stablehlo.broadcast_in_dim %65, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %67 = stablehlo.select %27, %64, %66 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %68 = stablehlo.constant dense<0.563825965> : tensor<f32>
// CHECK-NEXT:    %69 = stablehlo.broadcast_in_dim %68, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %70 = stablehlo.constant dense<0.564189494> : tensor<f32>
// CHECK-NEXT:    %71 = stablehlo.broadcast_in_dim %70, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %72 = stablehlo.select %27, %69, %71 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %73 = stablehlo.multiply %24, %24 : tensor<4xf32>
// CHECK-NEXT:    %74 = stablehlo.multiply %32, %73 : tensor<4xf32>
// CHECK-NEXT:    %75 = stablehlo.add %74, %37 : tensor<4xf32>
// CHECK-NEXT:    %76 = stablehlo.multiply %75, %73 : tensor<4xf32>
// CHECK-NEXT:    %77 = stablehlo.add %76, %42 : tensor<4xf32>
// CHECK-NEXT:    %78 = stablehlo.multiply %77, %73 : tensor<4xf32>
// CHECK-NEXT:    %79 = stablehlo.add %78, %47 : tensor<4xf32>
// CHECK-NEXT:    %80 = stablehlo.multiply %79, %73 : tensor<4xf32>
// CHECK-NEXT:    %81 = stablehlo.add %80, %52 : tensor<4xf32>
// CHECK-NEXT:    %82 = stablehlo.multiply %81, %73 : tensor<4xf32>
// CHECK-NEXT:    %83 = stablehlo.add %82, %57 : tensor<4xf32>
// CHECK-NEXT:    %84 = stablehlo.multiply %83, %73 : tensor<4xf32>
// CHECK-NEXT:    %85 = stablehlo.add %84, %62 : tensor<4xf32>
// CHECK-NEXT:    %86 = stablehlo.multiply %85, %73 : tensor<4xf32>
// CHECK-NEXT:    %87 = stablehlo.add %86, %67 : tensor<4xf32>
// CHECK-NEXT:    %88 = stablehlo.multiply %87, %73 : tensor<4xf32>
// CHECK-NEXT:    %89 = stablehlo.add %88, %72 : tensor<4xf32>
// CHECK-NEXT:    %90 = stablehlo.multiply %23, %24 : tensor<4xf32>
// CHECK-NEXT:    %91 = stablehlo.multiply %90, %89 : tensor<4xf32>
// CHECK-NEXT:    %92 = stablehlo.compare LT, %x, %31, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    %93 = stablehlo.subtract %26, %91 : tensor<4xf32>
// CHECK-NEXT:    %94 = stablehlo.select %92, %93, %91 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    %95 = stablehlo.subtract %2, %x : tensor<4xf32>
// CHECK-NEXT:    %96 = stablehlo.constant dense<7.85386146e-05> : tensor<f32>
// CHECK-NEXT:    %97 = stablehlo.broadcast_in_dim %96, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %98 = stablehlo.constant dense<-0.000801019371> : tensor<f32>
// CHECK-NEXT:    %99 = stablehlo.broadcast_in_dim %98, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %100 = stablehlo.constant dense<0.00518832775> : tensor<f32>
// CHECK-NEXT:    %101 = stablehlo.broadcast_in_dim %100, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %102 = stablehlo.constant dense<-0.0268538129> : tensor<f32>
// CHECK-NEXT:    %103 = stablehlo.broadcast_in_dim %102, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %104 = stablehlo.constant dense<0.112835854> : tensor<f32>
// CHECK-NEXT:    %105 = stablehlo.broadcast_in_dim %104, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %106 = stablehlo.constant dense<-0.37612626> : tensor<f32>
// CHECK-NEXT:    %107 = stablehlo.broadcast_in_dim %106, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %108 = stablehlo.constant dense<0.128379166> : tensor<f32>
// CHECK-NEXT:    %109 = stablehlo.broadcast_in_dim %108, dims = [] : (tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %110 = stablehlo.multiply %x, %x : tensor<4xf32>
// CHECK-NEXT:    %111 = stablehlo.multiply %110, %97 : tensor<4xf32>
// CHECK-NEXT:    %112 = stablehlo.add %111, %99 : tensor<4xf32>
// CHECK-NEXT:    %113 = stablehlo.multiply %112, %110 : tensor<4xf32>
// CHECK-NEXT:    %114 = stablehlo.add %113, %101 : tensor<4xf32>
// CHECK-NEXT:    %115 = stablehlo.multiply %114, %110 : tensor<4xf32>
// CHECK-NEXT:    %116 = stablehlo.add %115, %103 : tensor<4xf32>
// CHECK-NEXT:    %117 = stablehlo.multiply %116, %110 : tensor<4xf32>
// CHECK-NEXT:    %118 = stablehlo.add %117, %105 : tensor<4xf32>
// CHECK-NEXT:    %119 = stablehlo.multiply %118, %110 : tensor<4xf32>
// CHECK-NEXT:    %120 = stablehlo.add %119, %107 : tensor<4xf32>
// CHECK-NEXT:    %121 = stablehlo.multiply %120, %110 : tensor<4xf32>
// CHECK-NEXT:    %122 = stablehlo.add %121, %109 : tensor<4xf32>
// CHECK-NEXT:    %123 = stablehlo.multiply %x, %122 : tensor<4xf32>
// CHECK-NEXT:    %124 = stablehlo.subtract %95, %123 : tensor<4xf32>
// CHECK-NEXT:    %125 = stablehlo.compare LT, %0, %2, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
// CHECK-NEXT:    %r = stablehlo.select %125, %124, %94 : tensor<4xi1>, tensor<4xf32>
// CHECK-NEXT:    func.return %r : tensor<4xf32>
// CHECK-NEXT:  }
func.func public @erfc(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = chlo.erfc %x : tensor<4xf32> -> tensor<4xf32>
  return %r : tensor<4xf32>
}
