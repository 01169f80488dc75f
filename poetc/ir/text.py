"""Reading MLIR: StableHLO as JAX prints it or writes it to files, or poet IR at any stage.

`read_module` takes the bytes of a file given to the driver, `parse_module` any text of our
dialects. Both give a verified module in which every operation knows its line and column, and raise
InputError for anything else, which lists all faults that are not in dead code. What the text alone
shows is reported before parsing: "the file is truncated" helps more than the first token that the
parser stumbles over. Dead code that cannot be read is left out of the module.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from io import StringIO

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ModuleOp,
    NoneAttr,
    TensorType,
)
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.irdl import OptPropertyDef, VerificationContext
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import ParseError, VerifyException

from poetc.errors import InputError, SourceLocation, collected
from poetc.ir.aliasing import aliasing_faults
from poetc.ir.bytecode import MAGIC
from poetc.ir.calls import callees_first, public_functions
from poetc.ir.dialects import DIALECTS
from poetc.ir.framework_names import FRAMEWORK_NAMES
from poetc.ir.locations import Lines, SourceLines, source_location
from poetc.ir.parser import FaultTolerantParser, Unreadable, UnsupportedOperationError
from poetc.ir.sdy import MeshOp, drop_shardings, sharding_faults
from poetc.ir.stablehlo import CompositeOp
from poetc.ir.symbols import named_in
from poetc.ir.types import ELEMENT_TYPES, listed
from poetc.ir.vhlo import text_of

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

_BLANK = re.compile(r"[^\n]")

_MODULE = re.compile(r'\b(?:builtin\.)?module\b|\bfunc\.func\b|\bpoet\.graph\b|"[a-z]\w*\.\w+"\(')

_LOCATION_ALIAS = re.compile(
    r'^#loc\d* = loc\(.*$|[ \t]loc\((?:unknown|#loc\d*|"(?:[^"\\\n]|\\.)*"\(#loc\d*\)'
    r"|callsite\(#loc\d* at #loc\d*\)|fused(?:<[^<>\n]*>)?\[#loc\d*(?:, #loc\d*)*\])\)",
    re.MULTILINE,
)


# At the end of a file, and the strings in it.
_METADATA = re.compile(r"\{-#.*?#-\}", re.DOTALL)
_RESOURCE = re.compile(r'(?:"(?P<quoted>[^"\n]*)"|(?P<bare>[\w$.-]+))\s*:\s*"(?P<blob>[^"]*)"')


def make_context() -> Context:
    """A context with all dialects that poetc reads and writes, loaded when they are first used."""
    context = Context()
    available = get_all_dialects() | DIALECTS
    for name in (*_XDSL_DIALECTS, *DIALECTS):
        context.register_dialect(name, available[name])
    return context


def parse_module(text: str, filename: str = "<string>") -> ModuleOp:
    """Parse and verify a module; raises InputError that lists all faults."""
    return _parse(text, filename, is_step=False)


def _parse(text: str, filename: str, is_step: bool) -> ModuleOp:
    """Parse and verify a module; with `is_step` it must have one entry point, too."""
    lines = Lines(text, filename)
    masked = _STRING_OR_COMMENT.sub(lambda match: _BLANK.sub(" ", match[0]), text)
    if not masked.strip() and '"' not in text:
        raise InputError("the file is empty", SourceLocation(filename, 1, 1))
    if _MODULE.search(text) is None and _OPERATION.search(text) is None:
        raise InputError(
            "not MLIR: expected a module as jax.jit(step).lower(...).as_text() prints it",
            lines.at(len(text) - len(text.lstrip())),
        )
    if '"' in masked:
        raise InputError("unterminated or malformed string", lines.at(masked.index('"')))
    _check_brackets(masked, lines)
    _check_integer_types(masked, lines)
    # Locations of JAX's Python source are defined after their uses, which xDSL cannot read.
    sources = SourceLines(text)
    text = _LOCATION_ALIAS.sub(lambda match: " " * len(match[0]), text)
    resources, text = _split_resources(text, masked)
    parser: FaultTolerantParser | None = None
    try:
        parser = FaultTolerantParser(make_context(), text, masked, lines, resources, sources)
        module = parser.parse_module()
    except (ParseError, VerifyException, ValueError) as error:
        # Outside of all operations, where nothing says how to go on.
        if parser is None:
            raise InputError(str(error), lines.at(0)) from error
        parser.add_fault(error)
        raise _all_of(parser.faults) from error
    except RecursionError as error:
        raise InputError("nested too deeply", SourceLocation(filename, 1, 1)) from error
    faults = [*parser.faults, *_dynamic_shapes(masked, lines)]
    if malformed := list(_malformed_functions(module)):
        # Nothing more can be asked of them.
        raise _all_of([*faults, *malformed])
    _call_composites(module, parser.extents)
    extents = {
        op: (_position(lines.at(begin)), _position(lines.at(end)))
        for op, (begin, end) in parser.extents.items()
    }
    faults += _verify(module, [op for op, extent in extents.items() if _any_in(faults, extent)])
    faults += sharding_faults(module)
    if is_step and not any(isinstance(op, Unreadable) for op in module.ops):
        faults += _entry_faults(module)
    if faults:
        dead = dead_operations(module)
        found = [extents[op] for op in dead if op in extents]
        faults = [fault for fault in faults if not any(_any_in([fault], e) for e in found)]
        if faults:
            raise _all_of(faults)
        for op in reversed(dead):
            op.detach()
            op.erase()
    drop_shardings(module)
    return module


def _malformed_functions(module: ModuleOp) -> Iterator[InputError]:
    """Functions that lack what all have, as they can in generic form."""
    for op in module.walk():
        if isinstance(op, FuncOp) and (what := _malformed(op)) is not None:
            yield InputError(f"{op.name}: {what}", source_location(op))


def _malformed(function: FuncOp) -> str | None:
    """The fault of a malformed function; None for another one."""
    if len(function.regions) != 1:
        return f"{len(function.regions)} regions, expected one"
    for name, field in FuncOp.get_irdl_definition().properties.items():
        value = function.properties.get(name)
        if value is not None:
            try:
                field.constr.verify(value, VerificationContext())
            except VerifyException as error:
                return f"{name}: {error}"
        elif not isinstance(field, OptPropertyDef):
            return f"{name} is missing"
    type = function.function_type
    for attributes, types in (
        (function.arg_attrs, type.inputs),
        (function.res_attrs, type.outputs),
    ):
        if attributes is not None and len(attributes) not in (0, len(types)):
            return f"{len(attributes)} dictionaries for {len(types)} values"
    return None


def _call_composites(module: ModuleOp, extents: dict[Operation, tuple[int, int]]) -> None:
    """Puts calls in place of composites; what is called is all that they mean here."""
    for op in [op for op in module.walk() if isinstance(op, CompositeOp)]:
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException:
            continue  # As other faults of operations it is reported later.
        call = op.call()
        call.location = op.location
        extents[call] = extents.pop(op)
        Rewriter.replace_op(op, call)


def _position(place: SourceLocation) -> tuple[int, int]:
    return place.line, place.column


def _any_in(faults: Iterable[InputError], extent: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    """Whether one of the faults is within an extent."""
    places = (fault.location for fault in faults if fault.location is not None)
    return any(extent[0] <= _position(place) < extent[1] for place in places)


def _all_of(faults: Sequence[InputError]) -> InputError:
    """One error for all faults, with a list of what is supported if anything is not."""
    faults = list(faults)
    error = collected(
        [_explained(f) if isinstance(f, UnsupportedOperationError) else f for f in faults]
    )
    if not any(isinstance(fault, UnsupportedOperationError) for fault in faults):
        return error
    supported = f"{error.message}\nsupported are {'; '.join(_supported_operations())}"
    return InputError(supported, error.location)


def _explained(fault: UnsupportedOperationError) -> InputError:
    name, *_ = fault.message.split(" ")
    dialect, dot, _ = name.partition(".")
    if not dot:
        return InputError(f"expected an operation, not '{fault.message}'", fault.location)
    message = f"{fault.message} is not supported"
    if make_context().get_optional_dialect(dialect) is None:
        message += f" (unknown dialect '{dialect}')"
    elif name in FRAMEWORK_NAMES:
        message += f" ({FRAMEWORK_NAMES[name]})"
    return InputError(message, fault.location)


def read_module(data: bytes, filename: str) -> ModuleOp:
    """Parse a file given to the driver and check that it has one entry point.

    Raises InputError for what these two reject and for data that is not text.
    """
    start = SourceLocation(filename, 1, 1)
    if data.startswith(MAGIC):
        return _parse(text_of(data, filename), filename, is_step=True)
    if b"\0" in data:
        raise InputError("a binary file, expected MLIR text", start)
    try:
        # Some editors begin files with a byte order mark.
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not text: byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8", start
        ) from error
    return _parse(text, filename, is_step=True)


def _split_resources(text: str, masked: str) -> tuple[dict[str, str], str]:
    """The strings of resources by name, and the text without the section that they are in."""
    resources: dict[str, str] = {}
    for section in _METADATA.finditer(masked):
        begin, end = section.span()
        for match in _RESOURCE.finditer(text, begin, end):
            resources[match["bare"] or match["quoted"]] = match["blob"]
        text = text[:begin] + _BLANK.sub(" ", text[begin:end]) + text[end:]
    return resources, text


# --- checks on the text -------------------------------------------------------------------------


def _check_brackets(masked: str, lines: Lines) -> None:
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


@cache
def _supported_operations() -> tuple[str, ...]:
    lists = []
    for dialect_name in ("stablehlo", "chlo"):
        dialect = DIALECTS[dialect_name]()
        names = sorted(op.name.removeprefix(f"{dialect_name}.") for op in dialect.operations)
        lists.append(f"{dialect_name}: {', '.join(names)}")
    return tuple(lists)


def _dynamic_shapes(masked: str, lines: Lines) -> Iterator[InputError]:
    """The first dynamic shape of each line."""
    seen: set[int] = set()
    for match in re.finditer(r"\btensor<[^<>]*\?[^<>]*>|\btensor<\*x?", masked):
        place = lines.at(match.start())
        if place.line not in seen:
            seen.add(place.line)
            yield InputError(f"dynamic shape {match[0]}: lower the step with static shapes", place)


def _check_integer_types(masked: str, lines: Lines) -> None:
    """Reject integers so wide that xDSL runs out of memory over them."""
    match = re.search(r"(?<![%@#!^\w.$-])(?:\d+x)*([su]?i\d{5,})\b", masked)
    if match is not None:
        raise InputError(f"no such type: {match[1][:12]}...", lines.at(match.start(1)))


# --- checks on the module -----------------------------------------------------------------------


def _verify(module: ModuleOp, faulty: Iterable[Operation]) -> Iterator[InputError]:
    """The faults of operations, and values that are used before they are defined.

    `faulty` are known to be wrong, and so left out.
    """
    faulty, defined = set(faulty), set[SSAValue]()
    lost = {name for op in module.ops if isinstance(op, Unreadable) for name in op.functions}
    for op in module.walk():
        if op not in faulty and not isinstance(op, Unreadable):
            yield from _verify_operation(op, defined, lost)
        for region in op.regions:
            for block in region.blocks:
                defined.update(block.args)
        defined.update(op.results)


def _verify_operation(
    op: Operation, defined: Collection[SSAValue], lost: Collection[str]
) -> Iterator[InputError]:
    place = source_location(op)
    for index, operand in enumerate(op.operands):
        if operand not in defined:
            yield InputError(f"{op.name}: operand {index} is used before it is defined", place)
            return
    if isinstance(op, CallOp) and op.callee.root_reference.data in lost:
        return
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException as error:
        # xDSL wraps the message in a print of the whole module.
        cause = error.__cause__ if isinstance(error.__cause__, VerifyException) else error
        yield InputError(f"{op.name}: {cause}", place)
        return
    blocks = (block for region in op.regions for block in region.blocks)
    if not isinstance(op, ModuleOp) and any(block.is_empty for block in blocks):
        yield InputError(f"{op.name}: empty block", place)


def check_entry(module: ModuleOp) -> None:
    """Check that a module of functions has one public `main`, or `step` and others, complete and
    free of recursion.

    A module that already holds a `poet.graph` passes. Raises InputError.
    """
    faults = list(_entry_faults(module))
    if faults:
        raise collected(faults)


def _entry_faults(module: ModuleOp) -> Iterator[InputError]:
    if any(op.name == "poet.graph" for op in module.ops):
        return
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    if not functions:
        yield InputError("the module has no function", source_location(module))
        return
    for op in module.ops:
        if not isinstance(op, FuncOp | MeshOp):
            yield InputError(f"{op.name} beside functions is not supported", source_location(op))
    public = public_functions(module)
    names = [f.sym_name.data for f in public]
    if names != ["main"] and [name in STEPS for name in names].count(True) != 1:
        have = ", ".join(f"@{f.sym_name.data} (line {_line(f)})" for f in public) or "none"
        yield InputError(
            "expected one public function, @main, or @step and others that read its parameters; "
            f"public functions are: {have}",
            source_location(public[-1] if public else module),
        )
    for function in functions:
        yield from _function_faults(function)
    for main in public:
        yield from aliasing_faults(main)
    try:
        callees_first(module)
    except InputError as recursion:
        yield recursion


STEPS = ("main", "step")
"""The name of the function that is the training step."""


def entry_functions(module: ModuleOp) -> list[FuncOp]:
    """The public functions of a module that `check_entry` has passed, the step first; none of poet
    IR, whose functions are kernels."""
    if any(op.name == "poet.graph" for op in module.ops):
        return []
    return sorted(public_functions(module), key=lambda f: f.sym_name.data not in STEPS)


def _line(op: Operation) -> str:
    place = source_location(op)
    return "unknown" if place is None else str(place.line)


def _function_faults(function: FuncOp) -> Iterator[InputError]:
    name, place = function.sym_name.data, source_location(function)
    if function.is_declaration:
        yield InputError(f"@{name} has no body", place)
    elif len(function.body.blocks) != 1:
        yield InputError(f"@{name} has several blocks, control flow is not supported", place)
    types = (*function.function_type.inputs, *function.function_type.outputs)
    for type in dict.fromkeys(types):
        if (
            not isinstance(type, TensorType)
            or not isinstance(type.encoding, NoneAttr)
            or DYNAMIC_INDEX in type.get_shape()
            or type.element_type not in ELEMENT_TYPES
        ):
            yield InputError(
                f"@{name} takes or returns {type}; supported are static tensors of {listed('or')}",
                place,
            )


def dead_operations(module: ModuleOp) -> list[Operation]:
    """Operations that no result of a public function depends on, and functions that none calls.

    In the order of the module; of what is nested only the outermost. None where no function is
    public.
    """
    functions = named_in(module, FuncOp)
    live: set[Operation] = {
        op
        for op in module.ops
        if not isinstance(op, FuncOp)
        or op.sym_visibility is None
        or op.sym_visibility.data == "public"
    }
    if not any(isinstance(op, FuncOp) for op in live):
        return []
    waiting = list(live)
    while waiting:
        op = waiting.pop()
        needed: list[Operation] = []
        if isinstance(op, FuncOp):
            needed += (inner for inner in op.walk() if not _is_pure(inner))
        for inner in op.walk() if not isinstance(op, FuncOp) else ():
            needed += (v.op for v in inner.operands if isinstance(v, OpResult))
            names: Iterable[str] = ()
            if isinstance(inner, CallOp):
                names = (inner.callee.root_reference.data,)
            elif isinstance(inner, Unreadable):
                names = inner.functions
            needed += (functions[name] for name in names if name in functions)
        waiting += (new for new in needed if new not in live)
        live.update(needed)
    dead: list[Operation] = []
    for op in module.ops:
        if op not in live:
            dead.append(op)
        elif isinstance(op, FuncOp):
            dead += (o for block in op.body.blocks for o in block.ops if o not in live)
    return dead


def _is_pure(op: Operation) -> bool:
    """Whether an operation does nothing but define values."""
    if isinstance(op, Unreadable):
        return op.pure
    return isinstance(op, CallOp) or op.has_trait(Pure)


def module_text(module: ModuleOp) -> str:
    """The module in pretty form, as `read_module` reads it back."""
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue() + "\n"
