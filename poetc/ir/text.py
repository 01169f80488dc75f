"""Reading MLIR text: StableHLO as JAX prints it, or poet IR at any stage.

`read_module` takes the bytes of a file given to the driver, `parse_module` any text of our
dialects. Both give a verified module in which every operation knows its line and column, and raise
InputError with one message for anything else. What the text alone shows is reported before parsing:
"the file is truncated" or a list of all unsupported operations helps more than the first token that
the parser stumbles over.
"""

import math
import re
from bisect import bisect_right
from functools import cache
from io import StringIO

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FileLineColLoc,
    IntAttr,
    ModuleOp,
    NoneAttr,
    StringAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue, TypeAttribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from poetc.errors import InputError, SourceLocation
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import ELEMENT_TYPES
from poetc.simplify.inline import callees_first
from poetc.universe import UNIVERSE

_XDSL_DIALECTS = ("builtin", "func", "affine", "arith", "math", "memref")

# Deeper nesting than this is junk; xDSL's recursive parser needs some ten frames for each level.
_MAX_DEPTH = 40

# Exactly the strings that xDSL reads. On any other it backtracks without end, so a quote left when
# these are taken out is reported before xDSL sees it.
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"|//[^\n]*')

# An operation at the start of a line, after its results: `%0:2 = a.b` or `"a.b"(`.
# A name before `=` or `,` is the key of an attribute.
_OPERATION = re.compile(
    r'^[ \t]*(?:%[^="\n]*=[ \t]*)?'
    r'(?:"(?P<generic>[A-Za-z_]\w*\.[\w.$]+)"[ \t]*\('
    r"|(?P<custom>[A-Za-z_]\w*\.[\w.$]+)(?![\w.$]|[ \t]*[=,}\])>:]))",
    re.MULTILINE,
)

_MODULE = re.compile(r'\b(?:builtin\.)?module\b|\bfunc\.func\b|\bpoet\.graph\b|"[a-z]\w*\.\w+"\(')

_LOCATION_ALIAS = re.compile(
    r'^#loc\d* = loc\(.*$|[ \t]loc\((?:unknown|#loc\d*|"(?:[^"\\\n]|\\.)*"\(#loc\d*\))\)',
    re.MULTILINE,
)


# Messages of xDSL's parser that do not say what is wrong.
_UNCLEAR_MESSAGES = {
    " in block definition": "expected an operation, a block or '}'",
    "Expected suffix identifier after {first_char}": "expected a name after '%', '#', '!' or '^'",
}


def make_context() -> Context:
    """A context with all dialects that poetc reads and writes, loaded when they are first used."""
    context = Context()
    available = get_all_dialects() | UNIVERSE.all_dialects
    for name in (*_XDSL_DIALECTS, *UNIVERSE.all_dialects):
        context.register_dialect(name, available[name])
    return context


class _Lines:
    """Line and column of offsets in a text."""

    def __init__(self, text: str, filename: str):
        self.filename = filename
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> SourceLocation:
        line = bisect_right(self._starts, offset)
        return SourceLocation(self.filename, line, offset - self._starts[line - 1] + 1)


class _LocatingParser(Parser):
    """Gives each operation the place where it starts in the text.

    Reads each spelling of a plain tensor type once: types are half of the work of parsing.
    """

    _TENSOR = re.compile(r"tensor<(?:\d+x)*(?:f32|i32|i1)>")

    def __init__(self, context: Context, text: str, lines: _Lines):
        super().__init__(context, text, lines.filename)
        self._lines = lines
        self._file = StringAttr(lines.filename)
        self._types: dict[str, TypeAttribute] = {}

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

    def parse_operation(self) -> Operation:
        start = self._lines.at(self.pos)
        op = super().parse_operation()
        if not isinstance(op.location, FileLineColLoc):
            op.location = FileLineColLoc(self._file, IntAttr(start.line), IntAttr(start.column))
        return op


def parse_module(text: str, filename: str = "<string>") -> ModuleOp:
    """Parse and verify a module; raises InputError at file:line:column."""
    lines = _Lines(text, filename)
    masked = _STRING_OR_COMMENT.sub(lambda match: " " * len(match[0]), text)
    if not masked.strip() and '"' not in text:
        raise InputError("the file is empty", SourceLocation(filename, 1, 1))
    if _MODULE.search(text) is None and _OPERATION.search(text) is None:
        raise InputError(
            "not MLIR: expected a module as jax.jit(step).lower(...).as_text() prints it",
            lines.at(len(text) - len(text.lstrip())),
        )
    if '"' in masked:
        raise InputError("unterminated or malformed string", lines.at(masked.index('"')))
    context = make_context()
    _check_brackets(masked, lines)
    _check_operations(text, context, lines)
    _check_types(masked, lines)
    # Locations of JAX's Python source are defined after their uses, which xDSL cannot read.
    text = _LOCATION_ALIAS.sub(lambda match: " " * len(match[0]), text)
    parser = None
    try:
        parser = _LocatingParser(context, text, lines)
        module = parser.parse_module()
    except (VerifyException, ValueError) as error:
        # An attribute or type that cannot be made of what stands just before the next token.
        place = lines.at(parser.pos if parser is not None else 0)
        raise InputError(str(error), place) from error
    except ParseError as error:
        raise _syntax_error(error, text, lines) from error
    except RecursionError as error:
        raise InputError("nested too deeply", SourceLocation(filename, 1, 1)) from error
    _verify(module)
    return module


def _syntax_error(error: ParseError, text: str, lines: _Lines) -> InputError:
    start = min(error.span.start, len(text))
    message = _UNCLEAR_MESSAGES.get(error.msg, error.msg)
    undefined = re.match(r"values used but not defined: \[%([\w$.-]+)", message)
    if undefined is not None:
        # Noticed at the end of the file: point to the first use instead.
        use = re.search(rf"%{re.escape(undefined[1])}(?![\w$.-])", text)
        start = start if use is None else use.start()
    elif not text[start:].strip():
        message = f"unexpected end of file: {message}"
    return InputError(message, lines.at(start))


def read_module(data: bytes, filename: str) -> ModuleOp:
    """Parse a file given to the driver and check that it has one entry point.

    Raises InputError for what these two reject and for data that is not text.
    """
    start = SourceLocation(filename, 1, 1)
    if data.startswith(b"ML\xefR"):
        raise InputError("MLIR bytecode is not supported, write the module as text", start)
    if b"\0" in data:
        raise InputError("a binary file, expected MLIR text", start)
    try:
        # Some editors begin files with a byte order mark.
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not text: byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8", start
        ) from error
    module = parse_module(text, filename)
    check_entry(module)
    return module


# --- checks on the text -------------------------------------------------------------------------


def _check_brackets(masked: str, lines: _Lines) -> None:
    """Reject text that ends inside a bracket, and absurd nesting."""
    opened: list[re.Match[str]] = []
    for match in re.finditer(r"[()\[\]{}]", masked):
        if match[0] in "([{":
            opened.append(match)
            if len(opened) > _MAX_DEPTH:
                raise InputError(
                    f"brackets nested deeper than {_MAX_DEPTH}", lines.at(match.start())
                )
        elif opened:
            opened.pop()
    if opened:
        place = lines.at(opened[-1].start())
        raise InputError(
            f"the file ends inside '{opened[-1][0]}': it is truncated or a bracket is missing",
            place,
        )


def _check_operations(text: str, context: Context, lines: _Lines) -> None:
    """Report all operations that no dialect of ours has, with all their lines."""
    found: dict[str, list[SourceLocation]] = {}
    known: dict[str, bool] = {}
    for match in _OPERATION.finditer(text):
        name = match["generic"] or match["custom"]
        if name not in known:
            known[name] = context.get_optional_op(name) is not None
        if not known[name]:
            group = "generic" if match["generic"] else "custom"
            found.setdefault(name, []).append(lines.at(match.start(group)))
    if not found:
        return
    report = []
    for name, places in found.items():
        dialect = name.split(".")[0]
        unknown = context.get_optional_dialect(dialect) is None
        note = f" (unknown dialect '{dialect}')" if unknown else ""
        noun = "line" if len(places) == 1 else "lines"
        report.append(f"  {name}{note}: {noun} {', '.join(str(p.line) for p in places)}")
    supported = "; ".join(_supported_operations())
    raise InputError(
        "unsupported operations:\n" + "\n".join(report) + f"\nsupported are {supported}",
        min((p for places in found.values() for p in places), key=lambda p: (p.line, p.column)),
    )


@cache
def _supported_operations() -> tuple[str, ...]:
    lists = []
    for dialect_name in ("stablehlo", "chlo"):
        dialect = UNIVERSE.all_dialects[dialect_name]()
        names = sorted(op.name.removeprefix(f"{dialect_name}.") for op in dialect.operations)
        lists.append(f"{dialect_name}: {', '.join(names)}")
    return tuple(lists)


def _check_types(masked: str, lines: _Lines) -> None:
    """Report dynamic shapes, and integers so wide that xDSL runs out of memory over them."""
    match = re.search(r"\btensor<[^<>]*\?[^<>]*>|\btensor<\*x?", masked)
    if match is not None:
        raise InputError(
            f"dynamic shape {match[0]}: lower the step with static shapes",
            lines.at(match.start()),
        )
    match = re.search(r"(?<![%@#!^\w.$-])(?:\d+x)*([su]?i\d{5,})\b", masked)
    if match is not None:
        raise InputError(f"no such type: {match[1][:12]}...", lines.at(match.start(1)))


# --- checks on the module -----------------------------------------------------------------------


def _verify(module: ModuleOp) -> None:
    """Verify each operation, and that values are defined before they are used."""
    defined: set[SSAValue] = set()
    for op in module.walk():
        for index, operand in enumerate(op.operands):
            if operand not in defined:
                raise InputError(
                    f"{op.name}: operand {index} is used before it is defined", source_location(op)
                )
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            # xDSL wraps the message in a print of the whole module.
            cause = error.__cause__ if isinstance(error.__cause__, VerifyException) else error
            raise InputError(f"{op.name}: {cause}", source_location(op)) from error
        for region in op.regions:
            for block in region.blocks:
                defined.update(block.args)
                if block.is_empty and not isinstance(op, ModuleOp):
                    raise InputError(f"{op.name}: empty block", source_location(op))
        defined.update(op.results)


def check_entry(module: ModuleOp) -> None:
    """Check that a module of functions has one public `main`, complete and free of recursion.

    A module that already holds a `poet.graph` passes. Raises InputError.
    """
    if any(op.name == "poet.graph" for op in module.ops):
        return
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    if not functions:
        raise InputError("the module has no function", source_location(module))
    for op in module.ops:
        if not isinstance(op, FuncOp):
            raise InputError(f"{op.name} beside functions is not supported", source_location(op))
    public = [f for f in functions if f.sym_visibility is None or f.sym_visibility.data == "public"]
    names = [f.sym_name.data for f in public]
    if names != ["main"]:
        have = ", ".join(f"@{f.sym_name.data} (line {_line(f)})" for f in public) or "none"
        raise InputError(
            f"expected one public function, @main; public functions are: {have}",
            source_location(public[-1] if public else module),
        )
    for function in functions:
        _check_function(function)
    # Raises an error where there is recursion.
    callees_first(module)


def _line(op: Operation) -> str:
    place = source_location(op)
    return "unknown" if place is None else str(place.line)


def _check_function(function: FuncOp) -> None:
    name, place = function.sym_name.data, source_location(function)
    if function.is_declaration:
        raise InputError(f"@{name} has no body", place)
    if len(function.body.blocks) != 1:
        raise InputError(f"@{name} has several blocks, control flow is not supported", place)
    types = (*function.function_type.inputs, *function.function_type.outputs)
    for type in types:
        if (
            not isinstance(type, TensorType)
            or not isinstance(type.encoding, NoneAttr)
            or DYNAMIC_INDEX in type.get_shape()
            or type.element_type not in ELEMENT_TYPES
        ):
            raise InputError(
                f"@{name} takes or returns {type}; supported are static tensors of f32, i32 or i1",
                place,
            )


def module_text(module: ModuleOp) -> str:
    """The module in pretty form, as `read_module` reads it back."""
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue() + "\n"
