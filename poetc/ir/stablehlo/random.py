"""Random bits from a counter, by the generators and with the layouts of XLA on the CPU.

Both generators encrypt the numbers from a counter on, several rounds of additions, shifts and
products each (J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011). So the bits
are what the state says, however often they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir import types
from poetc.ir.stablehlo.base import (
    Array,
    StablehloOp,
    Value,
    check,
    check_elements,
    check_type,
    element_type_of,
    shape_of,
    tensor_type,
)
from poetc.ir.stablehlo.constants import IotaOp
from poetc.ir.stablehlo.control import ControlOp, Execute, ReturnOp
from poetc.ir.stablehlo.words import Emit, Words, joined
from poetc.ir.stablehlo_attributes import RngAlgorithmAttr
from poetc.ir.types import ui32, ui64


@irdl_op_definition
class RngBitGeneratorOp(ControlOp):
    """The state after, and unsigned numbers with random bits.

    The state is a key and a counter of one or, for Philox, two words, the lower one first. The
    default is Philox, as in XLA on the CPU. `stablehlo-simplify` expands it.
    """

    name = "stablehlo.rng_bit_generator"
    initial_state = operand_def(TensorType)
    rng_algorithm = prop_def(RngAlgorithmAttr)

    def __init__(self, state: Value, result_type: TensorType, algorithm: str):
        super().__init__(
            operands=[state],
            result_types=[[tensor_type(state), result_type]],
            properties={"rng_algorithm": RngAlgorithmAttr(algorithm)},
        )

    @property
    def is_threefry(self) -> bool:
        """Whether it is Threefry-2x32-20, else Philox-4x32-10."""
        return self.rng_algorithm.data == "THREE_FRY"

    @classmethod
    def parse(cls, parser: Parser) -> RngBitGeneratorOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        parser.parse_keyword("algorithm")
        parser.parse_punctuation("=")
        algorithm = RngAlgorithmAttr(parser.parse_identifier())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        state = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation("->")
        results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        return cls.create(
            operands=parser.resolve_operands([operand], state, parser.pos),
            result_types=results,
            properties={"rng_algorithm": algorithm},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.initial_state)
        printer.print_string(f", algorithm = {self.rng_algorithm.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)

    def verify_op(self) -> None:
        check_elements("operand 0", self.initial_state, (ui64,))
        allowed = ((2,),) if self.is_threefry else ((2,), (3,))
        shape = shape_of(self.initial_state)
        words = " or ".join(str(n) for (n,) in allowed)
        check(shape in allowed, f"the state has the shape {list(shape)}, expected {words} words")
        check(len(self.results) == 2, f"{len(self.results)} results, expected two")
        check_type("result 0", self.results[0].type, self.initial_state.type)
        check_elements("result 1", self.results[1], types.with_arithmetic("unsigned"))

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        block = Block(arg_types=[self.initial_state.type])

        def emit(op: StablehloOp) -> SSAValue:
            block.add_op(op)
            return op.result

        block.add_op(ReturnOp(*self.expanded(block.args[0], emit)))
        return execute(block, operands)

    def expanded(self, state: SSAValue, emit: Emit) -> list[SSAValue]:
        """Its results for a state, by integer arithmetic.

        Each number is computed by itself, so that no others are stored: one encryption gives two or
        four, and is done again for each of them.
        """
        shape, element = shape_of(self.results[1]), element_type_of(self.results[1])
        key, *counter = (Words(state, emit).column(n) for n in range(*shape_of(state)))
        parts = (2 if self.is_threefry else 4) // (2 if element == ui64 else 1)
        form, dim = shape or (1,), 0
        if self.is_threefry and parts > 1:
            # Pairs are along the first even dimension, or else the longest.
            dim = next((d for d, n in enumerate(form) if n % 2 == 0), form.index(max(form)))
        else:
            form = (math.prod(form),)
        length = -(-form[dim] // parts)
        before, behind = form[:dim], form[dim + 1 :]
        count = length * math.prod(before + behind)

        index = Words(emit(IotaOp(TensorType(ui64, [count]), 0)), emit)
        index = index.shaped((*before, length, *behind)).repeated(dim, parts).first(form)
        if not self.is_threefry and len(counter) == 1:
            # XLA takes this in place of the upper word.
            counter.append(key)
        words = [half for number in _advanced(counter, index) for half in number.halves()]
        generate = _threefry if self.is_threefry else _philox
        found = generate(words, [half.broadcast(form) for half in key.halves()])
        if element == ui64:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [low.to(ui64) | high.to(ui64) << 32 for low, high in pairs]

        place = Words(emit(IotaOp(TensorType(ui32, form), dim)), emit) & parts - 1
        *others, result = found
        for part, number in reversed(list(enumerate(others))):
            result = place.equals(part).chooses(number, result)
        after = [key, *_advanced(counter, count)][: shape_of(state)[0]]
        after = joined([word.shaped((1,)) for word in after], 0)
        return [after.value, result.to(element).shaped(shape).value]


def _advanced(counter: Sequence[Words], steps: Words | int) -> list[Words]:
    """A counter after steps; the lower word comes first."""
    low, *high = counter
    new = low + steps
    return [new, *(word + (new < low).to(ui64) for word in high)]


def _threefry(words: Sequence[Words], key: Sequence[Words]) -> list[Words]:
    """Threefry-2x32-20."""
    keys = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    a, b = words[0] + keys[0], words[1] + keys[1]
    for step in range(5):
        for bits in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
            a += b
            b = (b << bits | b >> 32 - bits) ^ a
        a += keys[(step + 1) % 3]
        b += keys[(step + 2) % 3] + (step + 1)
    return [a, b]


def _philox(words: Sequence[Words], key: Sequence[Words]) -> list[Words]:
    """Philox-4x32-10."""
    a, b, c, d = words
    left, right = key
    for _ in range(10):
        first, second = (a.to(ui64) * 0xD2511F53).halves(), (c.to(ui64) * 0xCD9E8D57).halves()
        a, b, c, d = second[1] ^ b ^ left, second[0], first[1] ^ d ^ right, first[0]
        left, right = left + 0x9E3779B9, right + 0xBB67AE85
    return [a, b, c, d]
