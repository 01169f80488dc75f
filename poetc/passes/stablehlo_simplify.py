"""`stablehlo-simplify`: the same results, bit for bit, with fewer and simpler operations.

Inlines private functions, unrolls short loops and counts the steps of long ones, makes selects of
branches, expands CHLO and sorting, folds constants, merges equal operations, removes dead ones, and
applies the algebra of `poetc.simplify` that keeps every bit. What is left is in a normal form that
the later passes rely on:

- one function, no calls, no loops but `resume.repeat`, no branches, no CHLO, no dynamic slices;
- a tensor of equal elements is a scalar constant and a broadcast, or a constant of one element;
- the constant operand of a commutative operation, and of a comparison, is the right one;
- no transpose, broadcast or reduce that a reshape can express, no reshape of a reshape.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.chlo import NextAfterOp
from poetc.simplify import algebra, bitcast, chlo, dynamic, folding, folds, movement, special
from poetc.simplify.control import expand_control
from poetc.simplify.driver import Rules, remove_dead, simplify_block
from poetc.simplify.inline import inline_calls, remove_barriers
from poetc.simplify.keep import prune_captured
from poetc.simplify.narrow import narrow_integers

RULES: Rules = {
    hlo.AddOp: (algebra.constant_last, algebra.add_zero, algebra.add_negated),
    hlo.SubtractOp: (algebra.subtract_zero, algebra.subtract_negated, algebra.cancels),
    hlo.MultiplyOp: (
        algebra.constant_last,
        algebra.multiply_one,
        algebra.scale_by_minus_one,
        algebra.multiply_int_zero,
        algebra.negative_constant,
    ),
    hlo.DivideOp: (
        algebra.divide_one,
        algebra.scale_by_minus_one,
        algebra.negative_constant,
        algebra.divide_power_of_two,
    ),
    hlo.MaximumOp: (algebra.constant_last, algebra.maximum_identity, algebra.same_operands),
    hlo.MinimumOp: (algebra.constant_last, algebra.minimum_identity, algebra.same_operands),
    hlo.AndOp: (algebra.constant_last, algebra.and_constant, algebra.same_operands),
    hlo.OrOp: (algebra.constant_last, algebra.or_constant, algebra.same_operands),
    hlo.XorOp: (algebra.constant_last, algebra.xor_zero, algebra.cancels),
    hlo.NegateOp: (algebra.negate_negate, algebra.negate_scaled),
    hlo.NotOp: (algebra.not_not,),
    hlo.SelectOp: (algebra.select_same, algebra.select_constant, algebra.select_not),
    hlo.ConvertOp: (algebra.convert_same, algebra.convert_bool),
    hlo.CompareOp: (
        algebra.constant_last_in_compare,
        algebra.compare_same,
        folding.compare_ranges,
        algebra.compare_rectified,
    ),
    hlo.ConstantOp: (folding.shrink_constant,),
    hlo.ReshapeOp: (movement.identity, movement.reshape_reshape),
    hlo.BroadcastInDimOp: (
        movement.broadcast_broadcast,
        movement.broadcast_reshape,
        movement.broadcast_to_reshape,
    ),
    hlo.TransposeOp: (
        movement.transpose_to_reshape,
        movement.transpose_transpose,
        movement.transpose_broadcast,
        movement.transpose_of_dot,
        movement.transpose_of_convolution,
    ),
    hlo.ReverseOp: (movement.reverse_ones, movement.reverse_reverse),
    hlo.SliceOp: (
        movement.slice_all,
        movement.slice_slice,
        dynamic.slice_of_concatenation,
        dynamic.slice_of_update,
    ),
    hlo.PadOp: (movement.pad_nothing, movement.pad_to_slice),
    hlo.ConcatenateOp: (movement.concatenate_one,),
    hlo.ReduceOp: (folding.reduce_splat, movement.reduce_of_one),
    hlo.FoldOp: (folds.fold_nothing, folds.carry_less),
    hlo.ReduceWindowOp: (movement.window_of_one,),
    hlo.DotGeneralOp: (movement.dot_of_transpose,),
    hlo.ConvolutionOp: (movement.convolution_of_transpose,),
    hlo.DynamicSliceOp: (dynamic.slice_window,),
    hlo.DynamicUpdateSliceOp: (dynamic.update_window,),
    hlo.SquareOp: (chlo.expand_square,),
    hlo.ErfOp: (chlo.expand_erf,),
    hlo.ErfcOp: (chlo.expand_erfc,),
    **special.EXPANSIONS,
}

_FOLDS: Rules = {
    op: (folding.fold_elementwise if issubclass(op, hlo.ElementwiseOp) else folding.fold_movement,)
    for op in hlo.OPERATIONS
    if issubclass(op, hlo.ElementwiseOp | hlo.MovementOp)
}

_FIRST: Rules = {
    **{op: (chlo.in_single_precision,) for op in hlo.CHLO.operations if op is not NextAfterOp},
    hlo.BitcastConvertOp: (bitcast.resize_elements,),
}

_ALL_RULES: Rules = {
    op: tuple(rule for rules in (_FIRST, _FOLDS, RULES) for rule in rules.get(op, ()))
    for op in {*_FIRST, *RULES, *_FOLDS}
}


@dataclass(frozen=True)
class StableHLOSimplifyPass(ModulePass):
    """Inline, fold, merge and simplify StableHLO without changing any bit of a result."""

    name = "stablehlo-simplify"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        inline_calls(op)
        remove_barriers(op)
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                for block in function.body.blocks:
                    remove_dead(block)
                    expand_control(block)
                    _simplify(block)


def _simplify(block: Block) -> None:
    """Simplify a block and the loops in it."""
    for loop in [op for op in block.ops if isinstance(op, hlo.RepeatOp)]:
        _simplify(loop.body.block)
        prune_captured(loop)
    narrow_integers(block)
    simplify_block(block, _ALL_RULES)
