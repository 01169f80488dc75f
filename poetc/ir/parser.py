"""A parser of MLIR that goes on after a fault, so that one run finds all of them.

An operation that cannot be read becomes an `Unreadable` that defines the same names, with whatever
types their uses have, and parsing resumes at the next operation of the block. Where an operation
ends is seen from the brackets: at the end of a line, when all that it opened are closed, if the
next line begins as operations do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    FileLineColLoc,
    IntAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import (
    Attribute,
    AttributeInvT,
    Block,
    Operation,
    OpResult,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.ir.core import SSAValues
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.parser.core import UnresolvedOperand
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.mlir_lexer import MLIRTokenKind, StringLiteral

from poetc.errors import InputError
from poetc.ir.dense import parse_dense_resource
from poetc.ir.locations import Lines, SourceLines
from poetc.ir.types import ELEMENT_TYPES

_STARTS_OPERATION = re.compile(
    r'\s*(?:%[\w$.-]|"[A-Za-z_]|[A-Za-z_][\w$]*\.[\w$.]+(?![\w.$]|[ \t]*=)'
    r"|(?:return|call|module)\b|\^|\}|\{-#|[#!][\w.]+ *=|\Z)"
)
"""Text after the end of an operation."""

_INSIDE_REGION = re.compile(r'\s*(?:%|\^|"[A-Za-z_]|[A-Za-z_][\w$.]*+(?![ \t]*[=:,]))')
"""Text after the bracket of a region, but not of a dictionary."""

_BRACKET_OR_LINE = re.compile(r"[()\[\]{}\n]")
_OPENS_AT_END_OF_LINE = re.compile(r"\{[ \t]*\n")
_RESULTS = re.compile(r"(?:%[\w$.-]+(?::\d+)?\s*,?\s*)+=")
_OPERATION_NAME = re.compile(r'(?:%[^="\n]*=\s*)?"?(?P<name>[A-Za-z_][\w$.]*)')
# The target of a custom call, in its short form or among the properties of the generic one.
_CALLED = re.compile(
    r'"?\s*(?:@(?P<name>[\w$.-]+)|(?:@|\([^\n]*?\bcall_target_name\s*=\s*)"(?P<quoted>[^"\n]*)")'
)
_VALUE = re.compile(r"%([\w$.-]+)")
_FUNCTION = re.compile(r"@([\w$.-]+)")

# Messages of xDSL's parser that do not say what is wrong.
_CLEARER = {
    " in block definition": "expected an operation, a block or '}'",
    "Expected suffix identifier after {first_char}": "expected a name after '%', '#', '!' or '^'",
}

_FAULTS = (ParseError, VerifyException, ValueError)
"""The last two: an attribute or type that cannot be made of what stands there."""


class UnsupportedOperationError(InputError):
    """An operation that no dialect has. `message` is its name, and what it calls outside."""


class Unreadable(Operation):
    """In place of an operation with a fault. Results are made for each type that uses have.

    `functions` are the names of all functions in it. `pure`: it defines new names, and nothing says
    that it does more.
    """

    name = "poetc.unreadable"
    traits = traits_def()

    def __init__(self, operands: Sequence[SSAValue], functions: Iterable[str], pure: bool) -> None:
        super().__init__(operands=operands)
        self.functions, self.pure = frozenset(functions), pure
        self._made: dict[tuple[str, int, Attribute], OpResult] = {}

    def result_of(self, name: str, index: int, type: Attribute) -> OpResult:
        """The result that is used as `%name#index` with that type."""
        key = (name, index, type)
        if key not in self._made:
            self._made[key] = OpResult(type, self, len(self.results))
            self.results = SSAValues((*self.results, self._made[key]))
        return self._made[key]


class _Lost(tuple[SSAValue, ...]):
    """The values of a name that an unreadable operation defines."""

    owner: Unreadable


class FaultTolerantParser(Parser):
    """Collects `faults`, and gives each operation the place where it starts in the text.

    `masked` is the text with blanks for what is in strings and comments, `resources` what the file
    has at its end for the names of resources. `extents` are the offsets
    of the begin and the end of each operation. Each spelling of a plain tensor type is read once:
    types are half of the work of parsing.
    """

    _TENSOR = re.compile(
        rf"tensor<(?:\d+x)*(?:{'|'.join(t.name for t in ELEMENT_TYPES.values())})>"
    )

    def __init__(
        self,
        context: Context,
        text: str,
        masked: str,
        lines: Lines,
        resources: Mapping[str, str],
        sources: SourceLines,
    ) -> None:
        self._resources, self._sources = resources, sources
        self.faults: list[InputError] = []
        self.extents: dict[Operation, tuple[int, int]] = {}
        self._text, self._masked, self._lines = text, masked, lines
        self._file = StringAttr(lines.filename)
        self._types: dict[str, TypeAttribute] = {}
        self._first_uses: dict[str, int] = {}
        super().__init__(context, text, lines.filename)

    def parse_optional_type(self) -> TypeAttribute | None:
        match = self._TENSOR.match(self.lexer.input.content, self.pos)
        if match is None:
            return super().parse_optional_type()
        type = self._types.get(match[0])
        if type is not None:
            self._resume_from(match.end())
            return type
        type = super().parse_optional_type()
        assert isinstance(type, TensorType), "the text starts like a tensor type"
        if math.prod(type.get_shape()) >= 1 << 48:
            self.raise_error(f"{type} is too large", match.start(), match.end())
        self._types[match[0]] = type
        return type

    def parse_optional_str_literal(self) -> str | None:
        """A string is text, also where xDSL takes what is not ASCII for mere bytes."""
        if self._current_token.kind != MLIRTokenKind.BYTES_LIT:
            return super().parse_optional_str_literal()
        try:
            text = StringLiteral.from_span(self._current_token.span).string_contents
        except UnicodeDecodeError:
            return None
        self._consume_token()
        return text

    def _parse_builtin_dense_resource_attr(self) -> Any:
        return parse_dense_resource(self, self._resources)

    def parse_operation(self) -> Operation:
        begin, dialects = self.pos, len(self._parser_state.dialect_stack)
        try:
            op = super().parse_operation()
        except _FAULTS as error:
            del self._parser_state.dialect_stack[dialects:]
            fault = self.add_fault(error, begin)
            last = self.faults.pop()
            op = self._skip(begin, fault)
            assert last.location is not None
            place = replace(last.location, source=self._sources.of(begin, self.pos))
            self.faults.append(type(last)(last.message, place))
        if op.has_trait(IsolatedFromAbove):
            self._report_undefined()
        if not isinstance(op.location, FileLineColLoc):
            start = self._lines.at(begin)
            place = FileLineColLoc(self._file, IntAttr(start.line), IntAttr(start.column))
            source = self._sources.of(begin, self.pos)
            op.location = place if source is None else NameLoc(StringAttr(source), place)
        self.extents[op] = (begin, self.pos)
        return op

    def parse_optional_region(
        self, arguments: Sequence[Parser.Argument] | None = None
    ) -> Region | None:
        values, blocks = self.ssa_values.copy(), self.blocks
        references = self.forward_block_references
        try:
            return super().parse_optional_region(arguments)
        except _FAULTS:
            self.ssa_values, self.blocks = values, blocks
            self.forward_block_references = references
            raise

    def resolve_operand(
        self, operand: UnresolvedOperand, type: AttributeInvT
    ) -> SSAValue[AttributeInvT]:
        name = operand.operand_name
        values = self.ssa_values.get(name)
        if isinstance(values, _Lost):
            return cast("SSAValue[Any]", values.owner.result_of(name, operand.index, type))
        if values is None:
            self._first_uses.setdefault(name, operand.span.start)
        return super().resolve_operand(operand, type)

    def _parse_block_body(self, block: Block) -> None:
        ends = (MLIRTokenKind.R_BRACE, MLIRTokenKind.CARET_IDENT, MLIRTokenKind.EOF)
        super()._parse_block_body(block)
        while self._current_token.kind not in ends:
            fault = ParseError(self._current_token.span, " in block definition")
            self.add_fault(fault, self.pos)
            block.add_op(self._skip(self.pos, self.pos))
            super()._parse_block_body(block)

    def _get_op_by_name(self, name: str) -> type[Operation]:
        op = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if op is None:
            raise _UnregisteredError(self._current_token.span, name)
        return op

    # Faults

    def add_fault(self, error: Exception, begin: int = 0) -> int:
        """Adds what is wrong in the operation at `begin` to the faults; returns the offset."""
        message, kind, place = str(error), InputError, self.pos
        if isinstance(error, ParseError):
            message, place = _CLEARER.get(error.msg, error.msg), error.span.start
            if not self._text[place:].strip():
                message = f"unexpected end of file: {message}"
        if isinstance(error, _UnregisteredError):
            match = _OPERATION_NAME.match(self._text, begin)
            place = begin if match is None else match.start("name")
            kind = UnsupportedOperationError
            if message == "stablehlo.custom_call" and match is not None:
                called = _CALLED.match(self._text, match.end())
                message += "" if called is None else f" @{called['name'] or called['quoted']}"
        self.faults.append(kind(message, self._lines.at(min(place, len(self._text)))))
        return place

    def _report_undefined(self) -> None:
        """Reports values that are not defined at the end of an operation that sees nothing
        outside."""
        for name in self.forward_ssa_references:
            message = f"values used but not defined: [%{name}]"
            self.faults.append(InputError(message, self._lines.at(self._first_uses[name])))
        self.forward_ssa_references.clear()
        self._first_uses.clear()

    def _skip(self, begin: int, fault: int) -> Unreadable:
        """A stand-in for the operation at `begin`; goes on behind it.

        Regions behind the fault are read for the faults in them.
        """
        end = self._end(begin)
        references = self.forward_ssa_references
        done = fault
        for match in _OPENS_AT_END_OF_LINE.finditer(self._masked, fault, end):
            if match.start() < done or not _INSIDE_REGION.match(self._text, match.end()):
                continue
            self.forward_ssa_references = {}
            try:
                self._resume_from(match.start())
                self.parse_optional_region()
                done = self.pos
            except _FAULTS:
                done = end
            self.forward_ssa_references = references
        op = self._unreadable(begin, end)
        self._go_on(end)
        return op

    def _end(self, begin: int) -> int:
        """Where the operation at `begin` ends."""
        depth = 0
        for match in _BRACKET_OR_LINE.finditer(self._masked, begin):
            if match[0] in "([{":
                depth += 1
            elif match[0] != "\n":
                depth -= 1
                if depth < 0:
                    return match.start()
            elif depth == 0 and _STARTS_OPERATION.match(self._text, match.end()):
                return match.end()
        return len(self._text)

    def _go_on(self, offset: int) -> None:
        """Continues at an offset, or in the next line in which there is a token."""
        while True:
            try:
                self._resume_from(offset)
                return
            except ParseError as error:
                following = self._text.find("\n", error.span.start) + 1
                self.faults.append(InputError(error.msg, self._lines.at(error.span.start)))
                offset = following or len(self._text)

    def _unreadable(self, begin: int, end: int) -> Unreadable:
        """Reads what it uses and defines."""
        text = self._masked[begin:end]
        results = _RESULTS.match(text)
        defined = [] if results is None else _VALUE.findall(results[0])
        used = dict.fromkeys(_VALUE.findall(text, 0 if results is None else results.end()))
        operands: list[SSAValue] = []
        for name in used:
            values = self.ssa_values.get(name, ())
            operands += (
                [values.owner.result_of(name, 0, NoneAttr())]
                if isinstance(values, _Lost)
                else values
            )
        fresh = bool(defined) and not any(name in self.ssa_values for name in defined)
        pure = fresh and "has_side_effect = true" not in text
        op = Unreadable(operands, _FUNCTION.findall(text), pure)
        for name in defined:
            lost = _Lost()
            lost.owner = op
            for index, value in self.forward_ssa_references.pop(name, {}).items():
                value.replace_all_uses_with(op.result_of(name, index, value.type))
            self.ssa_values.setdefault(name, lost)
        return op


class _UnregisteredError(ParseError):
    """The message is the name of the operation."""
