"""Functions of the C library, in f64, for any number of lanes: a loop in a helper each."""

from __future__ import annotations

from luminal.codegen.llvm_builder import F64, I64, FunctionBuilder, IRValue, ModuleBuilder


def library(b: FunctionBuilder, name: str, x: IRValue) -> IRValue:
    """The function of each lane: one helper per name and width."""
    if x.type.lanes == 1:
        return b.call(name, F64, [x])

    def build(module: ModuleBuilder, helper: str) -> None:
        _write_lane_loop(FunctionBuilder(module, helper, x.type, [("x", x.type)], "internal"), name)

    return b.call(b.module.helper(f"luminal.{name}.v{x.type.lanes}", build), x.type, [x])


def _write_lane_loop(f: FunctionBuilder, name: str) -> None:
    (x,) = f.params
    lanes = f.alloca(F64, x.type.lanes)
    f.store(x, lanes, 64)
    entry, loop, done = f.current, f.label("loop"), f.label("done")
    f.block(loop)
    index = f.phi(I64, [(f.const(I64, 0), entry)])
    address = f.gep(lanes, index, F64)
    f.store(f.call(name, F64, [f.load(F64, address, 8)]), address, 8)
    following = f.binary("add", index, f.const(I64, 1))
    f.add_incoming(index, following, f.current)
    f.cond_br(f.icmp("ult", following, f.const(I64, x.type.lanes)), loop, done)
    f.block(done)
    f.ret(f.load(x.type, lanes, 64))
