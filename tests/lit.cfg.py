# The lit tests: every .yaml, .mlir and .test file below the folders named here, with its RUN lines.
# tests/CMakeLists.txt gives the tools: lit -D gpuosc=PATH -D gpuos=PATH -D FileCheck=PATH -D out=DIR.
import os

import lit.formats

config.name = "gpuos"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".yaml", ".mlir", ".test"]
# Not lit tests: golden graphs, a corpus, programs.
config.excludes = ["Inputs", "emulate", "fuzz", "golden", "gpu", "numerics", "reference", "unit"]
config.test_exec_root = lit_config.params["out"]  # %t is written there

for tool in ("gpuosc", "gpuos", "FileCheck"):
    config.substitutions.append((rf"%{tool}\b", lit_config.params[tool]))

# `not` stands beside FileCheck. It takes any failure but a crash for the one that is expected, so a
# sanitizer writes its report into a file, which tests/tally.py looks for.
tools = os.path.dirname(os.path.realpath(lit_config.params["FileCheck"]))
config.environment["PATH"] = os.pathsep.join([tools, os.environ["PATH"]])
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
