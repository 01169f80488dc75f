"""Applies rules to a block of StableHLO operations, one sweep in program order.

A rule is a function of an operation and a `Rewriter`: it emits new operations and returns the value
that replaces the operation's result, or returns None. Rules look only at operands, never at users,
so when an operation is reached all it depends on is in final form and one sweep nearly suffices;
sweeps repeat until nothing changes. Equal operations are merged on the way, dead ones removed
before and after.

What is known of a value (`Facts`) is derived from the facts of its operands, once, when the sweep
has passed its definition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from poetc.ir import stablehlo as hlo
from poetc.simplify.facts import Facts

Rule = Callable[[Any, "Rewriter"], SSAValue | None]
Rules = Mapping[type[Operation], Sequence[Rule]]

_MAX_SWEEPS = 8


class Rewriter:
    """The tools of a rule: facts about operands, operations already computed, and emission."""

    def __init__(self, op: Operation, facts: Facts, known: Mapping[Any, SSAValue]):
        self.facts = facts
        self.emitted: list[Operation] = []
        self._op = op
        self._known = known

    def emit(self, op: hlo.StablehloOp) -> SSAValue:
        """Put a new operation before the one that is rewritten; its result."""
        op.location = self._op.location
        self.emitted.append(op)
        return op.result

    def splat(self, scalar: np.generic, type: Attribute) -> SSAValue:
        """A tensor of `type` filled with `scalar`, as one element or broadcast from a scalar."""
        shape = hlo.shape_of(type)
        if hlo.element_count(type) == 1:
            return self.emit(hlo.ConstantOp(np.full(shape, scalar)))
        constant = self.emit(hlo.ConstantOp(np.asarray(scalar)))
        return self.emit(hlo.BroadcastInDimOp(constant, (), shape))

    def find(self, op: hlo.StablehloOp) -> SSAValue | None:
        """The value of an equal operation earlier in the block. `op` itself is discarded."""
        value = self._known.get(_key(op))
        op.erase()
        return value


def simplify_block(block: Block, rules: Rules) -> None:
    """Rewrite the operations of a block until no rule applies; the terminator stays."""
    remove_dead(block)
    for _ in range(_MAX_SWEEPS):
        changed = _sweep(block, rules)
        remove_dead(block)
        if not changed:
            return


def _sweep(block: Block, rules: Rules) -> bool:
    facts = Facts()
    known: dict[Any, SSAValue] = {}
    changed = False
    op = block.first_op
    while op is not None:
        if not isinstance(op, hlo.StablehloOp):
            op = op.next_op
            continue
        rewriter = Rewriter(op, facts, known)
        value = _apply(op, rules.get(type(op), ()), rewriter)
        if value is None:
            # Equal pure operations on equal operands have equal results.
            value = known.setdefault(_key(op), op.result)
            if value is op.result:
                facts.learn(op)
                op = op.next_op
                continue
        changed = True
        following = op.next_op
        for new in rewriter.emitted:
            block.insert_op_before(new, op)
        if value.name_hint is None:
            value.name_hint = op.result.name_hint
        op.result.replace_all_uses_with(value)
        block.erase_op(op)
        op = rewriter.emitted[0] if rewriter.emitted else following
    return changed


def _apply(op: Operation, rules: Sequence[Rule], rewriter: Rewriter) -> SSAValue | None:
    for rule in rules:
        value = rule(op, rewriter)
        if value is not None:
            assert value.type == op.results[0].type, (rule, op)
            return value
        assert not rewriter.emitted, rule
    return None


def _key(op: hlo.StablehloOp) -> Any:
    """Equal for operations that compute the same."""
    properties = frozenset(op.properties.items())
    return type(op), tuple(op.operands), op.result.type, properties, op.bodies_key()


def remove_dead(block: Block) -> None:
    """Erase pure operations whose results nothing uses."""
    for op in reversed(list(block.ops)):
        if is_trivially_dead(op):
            block.erase_op(op)
