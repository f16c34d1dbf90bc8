"""A model under test: declarations, operators, data; its YAML, its raw files, its reference."""
import json

import numpy as np

import dtypes
import reference
from bounds import Num


class Graph:
    def __init__(self, rng):
        self.rng = rng
        self.decls = {}    # name: declaration, as YAML says it
        self.bits = {}     # name: bits of an input, weight or state
        self.ops = []      # (operator, attributes)
        self.outputs = []  # names
        self.exact = {}    # output: bits it must have, whatever the bound says
        self.steps = [{}]  # changes of self.bits before each step
        self.vague = False  # some outputs may be beyond judgement, as argmax of near ties

    # ---- building

    def tensor(self, name, shape, dtype="f32", role="input", values=None, scale=1.0):
        """Declares a tensor with these values, by default normal ones; returns its name."""
        if values is None:
            values = self.rng.normal(size=shape) * scale
        self.decls[name] = {"shape": list(shape), "dtype": dtype, "role": role}
        self.bits[name] = dtypes.encode(np.reshape(values, shape), dtype)
        return name

    def index(self, name, values):
        """An i32 input."""
        values = np.asarray(values)
        return self.tensor(name, values.shape, "i32", values=values)

    def cache(self, name, dtype="bf16", layers=1, kv_heads=1, head_dim=8, context=64, sequences=1,
              page_size=16, pages=None, table=None):
        """A paged cache; `table` orders its pages, by default as the runtime does."""
        count = sequences * context // page_size if pages is None else pages
        shape = (layers, 2, kv_heads, count, page_size, head_dim)
        self.decls[name] = {"kind": "paged_kv", "layers": layers, "kv_heads": kv_heads,
                            "head_dim": head_dim, "context": context, "sequences": sequences,
                            "page_size": page_size, "dtype": dtype, "role": "state"}
        if pages is not None:
            self.decls[name]["pages"] = pages
        self.bits[name] = np.zeros(shape, dtypes.WORDS[dtypes.size(dtype)])
        table = np.arange(sequences * context // page_size) if table is None else table
        self.bits[name + ".pages"] = dtypes.encode(np.reshape(table, (sequences, -1)), "i32")
        return name

    def op(self, op, **attributes):
        self.ops.append((op, attributes))
        return attributes["out"]

    def returns(self, *names):
        self.outputs += names

    # ---- the reference

    def evaluate(self):
        """Environments after each step: name to Num, states carried over."""
        states = {n: self.number(n) for n, d in self.decls.items() if d["role"] == "state"}
        environments = []
        for step in self.steps:
            names = {n: self.number(n, step.get(n)) for n in self.bits}
            names.update({n: Num(s.v.copy(), s.e, s.dtype) for n, s in states.items()})
            for op, attributes in self.ops:
                reference.run(op, attributes, names)
            states = {n: names[n] for n in states}
            environments.append(names)
        return environments

    def number(self, name, bits=None):
        dtype = "i32" if name not in self.decls else self.decls[name]["dtype"]
        return Num(dtypes.decode(self.bits[name] if bits is None else bits, dtype), dtype=dtype)

    # ---- what the compiler reads

    def yaml(self, names):
        """The model; the shapes and dtypes of its outputs are those that the reference found."""
        decls = dict(self.decls)
        for name in self.outputs:
            decls[name] = {"shape": list(names[name].shape), "dtype": names[name].dtype,
                           "role": "output"}
        lines = ["gpuos: 1", "name: t", "class: background", "tensors:"]
        lines += [f"  {json.dumps(n)}: {json.dumps(d)}" for n, d in decls.items()]
        lines += ["ops:"]
        lines += [f"  - {op}: {json.dumps(attributes)}" for op, attributes in self.ops]
        return "\n".join(lines) + "\n"

    def states(self):
        return [n for n, d in self.decls.items() if d["role"] == "state"]
