"""The pipelines that compile our Relax modules, registered with TVM as "poetc".

A schedule is in the order of the calls, in calls that are made twice, and in effects: pages
written and read, results in place. TVM's own pipelines may drop, merge or move what looks
redundant. These do not: no elimination of common subexpressions or of dead code, no folding, no
fusion. Of the kernels, too, nothing is simplified before LLVM, because TVM's simplifier treats
floats as real numbers (`x + 0.0` is not `x` if `x` is -0.0).
"""

# TVM's annotations do not have all attributes.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import tvm
from tvm import ir, relax, tirx

NOALIAS = "tirx.noalias"
"""Attribute of a PrimFunc: that no two of its arguments share bytes."""

NAME = "poetc"
"""The name of the pipeline: `tvm.compile(..., relax_pipeline=NAME, tir_pipeline=NAME)`."""


def relax_pipeline() -> tvm.transform.Pass:
    """Lowers a Relax module to calls of the virtual machine, one for one."""
    steps = relax.transform
    return tvm.transform.Sequential(
        [
            steps.LegalizeOps(),
            steps.ToNonDataflow(),
            steps.RemovePurityChecking(),
            steps.CallTIRRewrite(),
            steps.LowerAllocTensor(),
            steps.KillAfterLastUse(),
            steps.LowerRuntimeBuiltin(),
            steps.ComputePrimValue(),
            steps.VMShapeLower(),
            steps.AttachGlobalSymbol(),
        ],
        name=NAME,
    )


def tir_pipeline() -> tvm.transform.Pass:
    """Lowers PrimFuncs to functions that can be called with tensors."""
    steps = tirx.transform
    return tvm.transform.Sequential(
        [
            steps.FlattenBuffer(),
            steps.VerifyMemory(),
            steps.AnnotateEntryFunc(),
            steps.SplitHostDevice(),
            steps.MakePackedAPI(),
        ],
        name=NAME,
    )


def finish_host() -> tvm.transform.Pass:
    """The last steps before code for a processor is generated."""
    return tvm.transform.Sequential(
        [tirx.transform.LowerTVMBuiltin(), tirx.transform.LowerIntrin()]
    )


def register() -> None:
    """Makes both pipelines known to TVM by name; once is enough."""
    if NAME not in relax.pipeline.PIPELINE_MAP:
        relax.register_pipeline(NAME)(relax_pipeline)
        # There is no code for a second device, which is finished by the last of the three.
        steps = (tir_pipeline(), finish_host, finish_host)
        tirx.compilation_pipeline.register_tir_pipeline(NAME, lambda: steps)


def same_promise(module: ir.IRModule) -> ir.IRModule:
    """The module with `NOALIAS` for all of its PrimFuncs or for none: TVM tells LLVM of all
    functions of a module what holds for one of them."""
    functions = dict(module.functions.items())
    made = {v: f for v, f in functions.items() if isinstance(f, tirx.PrimFunc)}
    if not all(f.attrs is not None and f.attrs.get(NOALIAS, False) for f in made.values()):
        functions |= {v: f.with_attr(NOALIAS, False) for v, f in made.items()}
    return ir.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
