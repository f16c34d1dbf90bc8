// Outputs are bound by name.
// RUN: not %gpuosc %s --emit=table -o %t 2>&1 | %FileCheck %s
// CHECK: error: result 0 needs gpuos.name
module {
  func.func @s(%arg0: tensor<1x8xf32> {gpuos.name = "x", gpuos.role = "input"}, %arg1: tensor<1x8xf32> {gpuos.name = "y", gpuos.role = "input"}) -> tensor<1x8xf32> attributes {gpuos.class = "background", gpuos.deadline_us = 0 : i64, gpuos.target = "h200"} {
    %0 = "gpuos.map"(%arg0, %arg1) {dtype = "f32", expr = @pointwise_0, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0>} : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
    return %0 : tensor<1x8xf32>
  }
  func.func private @pointwise_0(%arg0: f32, %arg1: f32) -> f32 {
    %0 = arith.addf %arg0, %arg1 : f32
    return %0 : f32
  }
}

