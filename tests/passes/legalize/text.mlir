// The dialect's own text is an input, too; shapes are found as for YAML.
// RUN: %gpuosc --stop-after=legalize --emit=ir %s | %FileCheck %s
// CHECK: "gpuos.softmax"(%arg0) {dtype = ""} : (tensor<2x3xf32>) -> tensor<2x3xf32>
module {
  func.func @t(%x: tensor<2x3xf32> {gpuos.name = "x", gpuos.role = "input"})
      -> (tensor<2x3xf32> {gpuos.name = "y"})
      attributes {gpuos.class = "background", gpuos.deadline_us = 0 : i64, gpuos.target = ""} {
    %0 = "gpuos.softmax"(%x) {dtype = ""} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
