"""Reading text: locations, and one clear error for everything that is not a training step."""

import random
import re
from collections.abc import Sequence

import pytest
from conftest import MODELS, more
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import FileLineColLoc
from xdsl.dialects.func import FuncOp

from poetc.errors import InputError
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import AddOp, ConstantOp
from poetc.ir.text import check_entry, module_text, parse_module, read_module

GOOD = """\
module @jit_step attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32>
    %1 = call @f(%0) : (tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
  func.func private @f(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    return %arg0 : tensor<2xf32>
  }
}
"""


def function(properties: str, region: str = '({"func.return"() : () -> ()})') -> str:
    """A function in generic form."""
    return f'"func.func"() <{{function_type = () -> (), {properties}}}> {region} : () -> ()'


def error_of(text: str | bytes) -> InputError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(InputError) as info:
        read_module(data, "step.mlir")
    assert info.value.exit_code == 2
    assert info.value.location is not None and info.value.location.file == "step.mlir"
    return info.value


@pytest.mark.slow
def test_every_operation_knows_its_place():
    module = read_module(GOOD.encode(), "step.mlir")
    places = {op.name: str(source_location(op)) for op in module.walk()}
    assert places["builtin.module"] == "step.mlir:1:1"
    assert places["stablehlo.add"] == "step.mlir:3:5"
    assert places["func.call"] == "step.mlir:4:5"
    for path in sorted(MODELS.glob("*_*.mlir")):
        for op in parse_module(path.read_text(), path.name).walk():
            if op.name != "builtin.module" and "reduce" not in str(op.parent_op()):
                assert isinstance(op.location, FileLineColLoc)
        break


def test_locations_of_python_source_are_skipped():
    text = """\
#loc1 = loc("x")
module @m {
  func.func public @main(%arg0: tensor<2xf32> loc("x"(#loc1))) -> tensor<2xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32> loc(#loc9)
    %1 = call @f(%0) : (tensor<2xf32>) -> tensor<2xf32> loc(#loc9)
    return %1 : tensor<2xf32> loc(#loc)
  } loc(#loc)
  func.func private @f(%arg0: tensor<2xf32> loc(callsite(#loc1 at #loc9))) -> tensor<2xf32> {
    return %arg0 : tensor<2xf32> loc(fused<"x">[#loc1, #loc9])
  } loc(callsite(#loc1 at #loc9))
} loc(#loc)
#loc = loc(unknown)
#loc9 = loc("jit(step)/add"(#loc1))
"""
    module = read_module(text.encode(), "step.mlir")
    (add,) = [op for op in module.walk() if isinstance(op, AddOp)]
    assert str(source_location(add)) == "step.mlir:4:5"


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("", 1, "the file is empty"),
        (" \n // nothing\n", 1, "the file is empty"),
        ("import jax\nprint(1)\n", 1, "not MLIR: expected a module"),
        ('{"json": [1, 2]}', 1, "not MLIR: expected a module"),
        (b"ML\xefR\x0d\x02", 1, "the MLIR bytecode is damaged or truncated"),
        (
            GOOD.replace("call @f(%0)", 'stablehlo.composite "a.f" %0 {version = 1 : i32}'),
            4,
            "stablehlo.composite: property 'decomposition' expected",
        ),
        (
            GOOD.replace("call @f(%0)", 'stablehlo.composite "a.f" %0 {decomposition = @g}'),
            4,
            "'@g' could not be found",
        ),
        (function('sym_name = "main"', ""), 1, "func.func: 0 regions, expected one"),
        (function("sym_name = 1"), 1, "func.func: sym_name: 1 : i64 should be a string"),
        (function('arg_attrs = []'), 1, "func.func: sym_name is missing"),
        (function('sym_name = "main", arg_attrs = [1]'), 1, "arg_attrs: 1 : i64 should be"),
        (function('sym_name = "main", res_attrs = [{}]'), 1, "1 dictionaries for 0 values"),
        (b"PK\x03\x04\x00\x00", 1, "a binary file"),
        (GOOD.replace("@jit_step", '@"' + "a" * 99), 1, "unterminated or malformed string"),
        (GOOD.replace("@jit_step", '@"' + "a" * 99 + '\\q"'), 1, "unterminated or malformed"),
        (GOOD.replace("    return %1", "    + return %1"), 5, "expected an operation, a block or"),
        (GOOD.replace("add %arg0, %arg0", "reverse %arg0, dims = [9223372036854775808]"), 3, "i64"),
        (b"module \xff\xfe", 1, "not text: byte 0xff at offset 7"),
        (GOOD[:-3], 1, "the file ends inside '{': it is truncated"),
        (GOOD[: GOOD.index("%0)")], 4, "the file ends inside '('"),
        (GOOD.replace(" : tensor<2xf32>\n", " tensor<2xf32>\n"), 3, "Expected ':'"),
        (GOOD.replace("%arg0, %arg0", "%arg0, %arg9"), 3, "values used but not defined: [%arg9]"),
        (
            GOOD.replace("%1 = call @f(%0) : (tensor<2xf32>) -> tensor<2xf32>\n", "\n").replace(
                "    %0 = ", "    %1 = stablehlo.abs %0 : tensor<2xf32>\n    %0 = "
            ),
            3,
            "stablehlo.abs: operand 0 is used before it is defined",
        ),
        (GOOD.replace("%0 = ", "%arg0 = "), 3, "SSA value %arg0 is already defined"),
        (GOOD.replace("2xf32", "?xf32"), 2, "dynamic shape tensor<?xf32>"),
        (GOOD.replace("tensor<2xf32>", "tensor<*xf32>"), 2, "dynamic shape tensor<*x"),
        (GOOD.replace("f32", "i99999999999999"), 2, "no such type: i99999999999..."),
        (GOOD.replace("f32", "f64"), 2, "operand 0 has elements of type f64"),
        (GOOD.replace("add %arg0, %arg0 : tensor<2x", "iota dim = 0 : tensor<3x"), 4, "operand is"),
        (GOOD.replace("}) -> tensor<2xf32>", "}) -> tensor<3xf32>"), 2, "tensor<3xf32>"),
        (
            GOOD.replace("private", "public").replace("@main", "@first"),
            7,
            "public functions are: @first (line 2), @f (line 7)",
        ),
        (GOOD.replace("public", "private"), 1, "public functions are: none"),
        (GOOD.replace("@main", "@train"), 2, "public functions are: @train (line 2)"),
        (GOOD.replace("@f(%0)", "@g(%0)"), 4, "could not be found in symbol table"),
        ("module {\n}", 1, "the module has no function"),
        (
            GOOD.replace("return %arg0", "%0 = call @f(%arg0) : (tensor<2xf32>) -> tensor<2xf32>\n"
            "    return %0"),
            7,
            "recursion among functions is not supported: @f",
        ),
        (
            GOOD.replace("    return %arg0 : tensor<2xf32>\n", ""),
            7,
            "func.func: empty block",
        ),
        ("module " + "{ module " * 60 + "{" + "}" * 61, 1, "brackets nested deeper than 40"),
        ("module { func.func @main(%x: " + "tensor<" * 3000, 1, "the file ends inside"),
        ("module { func.func @main(%x: " + "tensor<" * 3000 + ")}", 1, ""),
        (GOOD.replace("2xf32", "99999999999999999999xf32"), 2, "is too large"),
        (
            GOOD.replace("%0 = stablehlo.add %arg0", "%c = stablehlo.constant dense<0.0> : "
            "tensor<999999999xf32>\n%0 = stablehlo.add %c"),
            3,
            "a constant of more than",
        ),
    ],
)  # fmt: skip
def test_error(text, line, message):
    error = error_of(text)
    assert message in error.message
    if message:
        assert error.location is not None and error.location.line == line, error


def test_all_unsupported_operations_are_listed():
    text = """\
module {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    // %0 = stablehlo.commented %arg0 : tensor<2xf32>
    %0 = stablehlo.all_reduce %arg0 {note = "stablehlo.quoted("} : tensor<2xf32>
    %1:2 = "stablehlo.all_reduce"(%0) <{
      mhlo.key = 1 : i64
    }> : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
    %2 = stablehlo.all_reduce %1#0 : tensor<2xf32>
    foo.bar %2
    %3 = chlo.bessel_i1e %2 : tensor<2xf32> -> tensor<2xf32>
    return %3 : tensor<2xf32>
  }
}
"""
    error = error_of(text)
    assert str(error.location) == "step.mlir:4:10"
    head, *lines = error.message.split("\n")
    assert head == "5 faults:"
    assert lines[:-1] == [
        "  step.mlir:4:10: stablehlo.all_reduce is not supported (jax.lax.psum)",
        "  step.mlir:5:13: stablehlo.all_reduce is not supported (jax.lax.psum)",
        "  step.mlir:8:10: stablehlo.all_reduce is not supported (jax.lax.psum)",
        "  step.mlir:9:5: foo.bar is not supported (unknown dialect 'foo')",
        "  step.mlir:10:10: chlo.bessel_i1e is not supported (jax.scipy.special.i1e)",
    ]
    assert "stablehlo: abs, add, and, atan2, bitcast_convert" in lines[-1]
    assert "chlo: acos, acosh, asin" in lines[-1]


FAULTY = {
    "unknown operation": ("%{0} = stablehlo.nonsense %{1} : tensor<4xf32>", [0]),
    "unknown dialect": ('%{0} = "foo.bar"(%{1}) : (tensor<4xf32>) -> tensor<4xf32>', [0]),
    "unknown operation with regions": (
        "%{0} = stablehlo.nonsense(%a{0} = %{1}) : tensor<4xf32>\n"
        "     cond {{\n"
        "      %b{0} = stablehlo.sum %a{0} : tensor<4xf32>\n"
        "      %c{0} = stablehlo.abs %b{0} tensor<4xf32>\n"
        "    }} do {{\n"
        '      %b{0} = "stablehlo.nonsense"(%a{0}) <{{\n'
        "        mhlo.key = 1 : i64\n"
        "      }}> : (tensor<4xf32>) -> tensor<4xf32>\n"
        "      stablehlo.return %b{0} : tensor<4xf32>\n"
        "    }}",
        [0, 2, 3, 5],
    ),
    "syntax": ("%{0} = stablehlo.abs %{1} tensor<4xf32>", [0]),
    "no token": ("%{0} = stablehlo.abs %{1} ` : tensor<4xf32>", [0]),
    "a malformed attribute": ("%{0} = stablehlo.abs %{1} {{a = }} : tensor<4xf32>", [0]),
    "not an operation": ("+\n    %{0} = stablehlo.abs %{1} : tensor<4xf32>", [0]),
    "an attribute that does not fit": (
        "%{0} = stablehlo.reverse %{1}, dims = [9223372036854775808] : tensor<4xf32>",
        [0],
    ),
    "refused by the verifier": ("%{0} = stablehlo.reverse %{1}, dims = [7] : tensor<4xf32>", [0]),
    "types": (
        "%t{0} = stablehlo.convert %{1} : (tensor<4xf32>) -> tensor<4xf64>\n"
        "    %{0} = stablehlo.convert %t{0} : (tensor<4xf64>) -> tensor<4xf32>",
        [0, 1],
    ),
    "another type": ("%{0} = stablehlo.add %{1}, %scalar : tensor<4xf32>", [0]),
    "undefined": ("%{0} = stablehlo.add %{1}, %undefined : tensor<4xf32>", [0]),
    "defined twice": ("%arg0 = stablehlo.abs %{1} : tensor<4xf32>\n"
                      "    %{0} = stablehlo.abs %{1} : tensor<4xf32>", [0]),
    "algorithm": (
        "%{0} = stablehlo.dot_general %{1}, %scalar, contracting_dims = [] x [], algorithm = "
        "<lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, "
        "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, "
        "allow_imprecise_accumulation = false> : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>",
        [0],
    ),
    "elided": (
        "%t{0} = stablehlo.constant dense_resource<__elided__> : tensor<4xf32>\n"
        "    %{0} = stablehlo.add %{1}, %t{0} : tensor<4xf32>",
        [0],
    ),
    "dynamic": (
        "%t{0} = stablehlo.slice %{1} [0:2] : (tensor<4xf32>) -> tensor<?xf32>\n"
        "    %{0} = stablehlo.convert %t{0} : (tensor<?xf32>) -> tensor<4xf32>",
        [0, 1],
    ),
}  # fmt: skip
"""Lines of a function, and in which of them there is a fault."""


def chain(kinds: Sequence[str | None], function: str, dead: Sequence[str] = ()) -> list[str]:
    """A function of operations, each on the value before; `dead` ones have results of no use."""
    lines = [
        f"  func.func {function}(%arg0: tensor<4xf32>, %scalar: tensor<f32>) -> tensor<4xf32> {{",
        "    %v0 = stablehlo.abs %arg0 : tensor<4xf32>",
    ]
    for number, kind in enumerate(kinds, 1):
        text = "%{0} = stablehlo.abs %{1} : tensor<4xf32>" if kind is None else FAULTY[kind][0]
        lines += ("    " + text.format(f"v{number}", f"v{number - 1}")).split("\n")
    for number, kind in enumerate(dead):
        lines += ("    " + FAULTY[kind][0].format(f"dead{number}", "arg0")).split("\n")
    return [*lines, f"    return %v{len(kinds)} : tensor<4xf32>", "  }"]


# A line that is not an operation says nothing of what uses it.
MAY_BE_DEAD = sorted(FAULTY.keys() - {"not an operation", "defined twice"})


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.none() | st.sampled_from(sorted(FAULTY)), max_size=8),
    st.lists(st.sampled_from(MAY_BE_DEAD), max_size=3),
    st.lists(st.sampled_from(sorted(FAULTY)), max_size=3),
)
def test_every_live_fault_is_listed_once(kinds, dead, uncalled):
    # A line that is not an operation goes with an operation before it that cannot be read.
    lone = "not an operation"
    before = [None, *kinds]
    kinds = [k for k, p in zip(kinds, before, strict=False) if k != lone or p is None]
    text = ["module {", *chain(kinds, "public @main", dead), *chain(uncalled, "private @f"), "}"]
    expected: list[int] = []
    line = 4
    for kind in kinds:
        words, faulty = ("", []) if kind is None else FAULTY[kind]
        expected += [line + at for at in faulty]
        line += 1 + words.count("\n")
    data = "\n".join(text).encode()
    if not expected:
        module = read_module(data, "step.mlir")
        module.verify()
        assert ("unreadable" not in str(module) and "@f" not in str(module)) or not uncalled
        return
    error = error_of(data)
    found = [
        int(n) for n in re.findall(r"^ *step\.mlir:(\d+):\d+: (?!\d+ faults)", str(error), re.M)
    ]
    assert found == expected, str(error)


@pytest.mark.parametrize("kind", sorted(FAULTY))
def test_each_kind_of_fault(kind):
    with pytest.raises(InputError) as info:
        parse_module("\n".join(["module {", *chain([kind, None], "public @main"), "}"]))
    assert info.value.location is not None and info.value.location.line == 4


def of_line(line: str, meshes: str = "", metadata: str = "") -> str:
    return f"""\
module {{
  {meshes}
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xi1>) -> tensor<4xf32> {{
    {line}
    return %0 : tensor<4xf32>
  }}
}}
{metadata}"""


ALGORITHM = (
    "lhs_precision_type = {0}, rhs_precision_type = {1}, accumulation_type = {2}, "
    "lhs_component_count = {3}, rhs_component_count = {3}, num_primitive_operations = {4}, "
    "allow_imprecise_accumulation = {5}"
)
PRETTY = (
    "%0 = stablehlo.dot_general %arg0, %arg0, batching_dims = [0] x [0], contracting_dims = [] x "
    "[], algorithm = <{}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
)
GENERIC = (
    '%0 = "stablehlo.dot_general"(%arg0, %arg0) <{{dot_dimension_numbers = #stablehlo.dot<'
    "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0]>, algorithm = "
    "#stablehlo.dot_algorithm<{}>}}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
)


@pytest.mark.parametrize("form", [PRETTY, GENERIC])
@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        (("f32", "f32", "f32", 1, 1, "false"), ""),
        (("f32", "f32", "f32", 1, 1, "true"), ""),
        (("tf32", "tf32", "f32", 1, 1, "false"), "TF32_TF32_F32"),
        (("bf16", "bf16", "f32", 3, 6, "false"), "BF16_BF16_F32_X6"),
        (("f8E4M3FN", "f8E5M2", "f32", 1, 1, "true"), "F8E4M3FN_F8E5M2_F32"),
        (("f32", "f32", "f64", 1, 1, "false"), "F32_F32_F64"),
    ],
)
def test_algorithms_of_dot_general(form: str, fields: tuple, refused: str) -> None:
    text = of_line(form.format(ALGORITHM.format(*fields)))
    if refused:
        error = error_of(text)
        assert f"algorithm {refused} is not supported, F32_F32_F32 is" in error.message
        assert error.location is not None and error.location.line == 4
    else:
        module = read_module(text.encode(), "step.mlir")
        # What is printed is read again.
        assert str(parse_module(module_text(module))) == str(module)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("lhs_component_count = 1, ", "field 'lhs_component_count' is missing"),
        ("true", "Expected"),
    ],
)
def test_damaged_algorithms(field: str, message: str) -> None:
    algorithm = ALGORITHM.format("f32", "f32", "f32", 1, 1, "true")
    assert message in error_of(of_line(PRETTY.format(algorithm.replace(field, "")))).message


@pytest.mark.parametrize(
    ("type", "name", "metadata", "elements"),
    [
        ("4xf32", "v", 'v: "0x040000000000803F000000400000404000008040"', [1, 2, 3, 4]),
        ("4xf32", '"a b"', '"a b": "0x040000000000803F000000400000404000008040"', [1, 2, 3, 4]),
        ("4xi1", "b.1", 'b.1: "0x0100000000010100"', [False, True, True, False]),
        ("4xi1", "b", 'x: "0x0400000000", b: "0x010000000A"', [False, True, False, True]),
        ("0xf32", "v", 'v: "0x04000000"', []),
        ("4xf32", "v", 'v: "0x040000000000803F"', "dense literal has 4 bytes, its type needs 16"),
        ("4xf32", "v", 'v: "0x04"', "resource 'v' is not a hexadecimal string"),
        ("4xf32", "v", 'v: "0x0400000000zz"', "resource 'v' is not a hexadecimal string"),
        ("4xf32", "v", 'w: "0x04000000"', "the file does not have the elements of resource 'v'"),
        ("4xf32", "__elided__", "", "were left out when the module was printed"),
        ("999999999xf32", "v", 'v: "0x04000000"', "a constant of more than"),
    ],
)
def test_resources(type: str, name: str, metadata: str, elements: list | str) -> None:
    section = f"{{-#\n  dialect_resources: {{\n builtin: {{ {metadata} }}\n }}\n#-}}\n"
    line = f"%c = stablehlo.constant dense_resource<{name}> : tensor<{type}>\n    %0 = "
    if isinstance(elements, str):
        # Results that are used, so that it matters.
        line += "stablehlo.add %arg0, %c : tensor<4xf32>"
        error = error_of(of_line(line, metadata=section))
        assert error.message.splitlines()[-1].count(elements) == 1, error
        assert error.location is not None and error.location.line == 4
        return
    line += "stablehlo.add %arg0, %arg0 : tensor<4xf32>"
    module = parse_module(of_line(line, metadata=section).replace("public @main", "@main"))
    (constant,) = [op for op in module.walk() if isinstance(op, ConstantOp)]
    assert constant.array().tolist() == elements


SHARDED = '%0 = sdy.sharding_constraint %arg0 <@m, [{"x"}]> : tensor<4xf32>'


@pytest.mark.parametrize("mesh", ["[]", '["x"=1]', '["x"=1, "y"=1]', "[], device_ids=[3]"])
@pytest.mark.parametrize(
    "line",
    [
        SHARDED,
        '%0 = "sdy.sharding_constraint"(%arg0) <{sharding = #sdy.sharding<@m, [{"x", ?}p1], '
        'replicated={"y"}>}> : (tensor<4xf32>) -> tensor<4xf32>',
        "%0 = stablehlo.abs %arg0 {sdy.sharding = #sdy.sharding_per_value<[<@m, [{?}]>]>} : "
        "tensor<4xf32>",
    ],
)
def test_shardings_on_one_device_are_dropped(mesh: str, line: str) -> None:
    text = of_line(line, f"sdy.mesh @m = <{mesh}> {{stablehlo.mesh = {{axes = []}}}}").replace(
        "%arg0: tensor<4xf32>", '%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}'
    )
    module = read_module(text.encode(), "step.mlir")
    assert "sdy" not in str(module)
    module.verify()


def test_every_mesh_of_several_devices_is_named() -> None:
    meshes = 'sdy.mesh @m = <["x"=2, "y"=4]>\n "sdy.mesh"() <{sym_name = "n", mesh = #sdy.mesh<'
    error = error_of(of_line(SHARDED.replace("arg0 ", "arg9 "), meshes + '["z"=3]>}> : () -> ()'))
    found = re.findall(r":(\d+):\d+: (.*)", error.message)
    assert found == [
        ("2", "sdy.mesh: mesh @m has 8 devices; lower the step for one device"),
        ("3", "sdy.mesh: mesh @n has 3 devices; lower the step for one device"),
        ("5", "values used but not defined: [%arg9]"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        '%0 = sdy.sharding_constraint %arg0 <mesh<["x"=4]>, [{"x"}]> : tensor<4xf32>',
        '%0 = stablehlo.abs %arg0 {sdy.sharding = #sdy.sharding_per_value<[<mesh<["x"=2, "y"=2]>, '
        '[{"x"}]>]>} : tensor<4xf32>',
    ],
)
def test_meshes_within_shardings(line: str) -> None:
    error = error_of(of_line(line))
    assert "a sharding over 4 devices; lower the step for one device" in error.message
    assert error.location is not None and error.location.line == 4


def test_a_sharding_of_itself() -> None:
    assert (
        "used before"
        in error_of(of_line(SHARDED.replace("arg0", "0"), "sdy.mesh @m = <[]>")).message
    )


def test_poet_ir_needs_no_main():
    module = parse_module("module {\n}")
    with pytest.raises(InputError, match="no function"):
        check_entry(module)
    text = """\
poet.graph @step(%x: tensor<f32>) -> (tensor<f32>) {
  poet.return %x : tensor<f32>
}
"""
    module = read_module(text.encode(), "graph.mlir")
    assert not any(isinstance(op, FuncOp) for op in module.walk())


def corrupted(data: bytes, rng: random.Random) -> bytes:
    """A copy with a few bytes cut off, changed, removed, inserted or moved, or a number changed."""
    damaged = bytearray(data)
    at = rng.randrange(len(data))
    how = rng.randrange(6)
    if how == 0:
        return data[:at]
    if how == 1:
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
    elif how == 2:
        del damaged[at : at + rng.randrange(1, 20)]
    elif how == 3:
        junk = [
            b"[[",
            b"<",
            b"9" * 30,
            b"-",
            b'"',
            b"{",
            b"}",
            b"()",
            b"tensor<4xf64>",
            b"0x1",
            b"%0",
            b"\n",
            b"//",
            b"1e400",
            b"dense<",
            b"?",
            b"loc(",
            b"#a",
            b"!b",
            b"^bb0:",
        ]
        damaged[at:at] = rng.choice(junk)
    elif how == 4:
        source = rng.randrange(len(data))
        length = rng.randrange(1, 60)
        damaged[at : at + length] = data[source : source + length]
    else:
        number = rng.choice(list(re.finditer(rb"\d+", data)))
        values = (0, 1, 2, 3, 7, -1, 10**6, 2**31, 2**63, 2**64)
        damaged[number.start() : number.end()] = str(rng.choice(values)).encode()
    return bytes(damaged)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *more(20, 40)])
def test_corrupted_files_give_one_error_or_a_module(first):
    text = (MODELS / "gesture_mlp.mlir").read_bytes()
    errors = 0
    for seed in range(first, first + 20):
        try:
            read_module(corrupted(text, random.Random(seed)), "step.mlir")
        except InputError as error:
            assert error.message and error.location is not None
            errors += 1
    assert errors > 10
