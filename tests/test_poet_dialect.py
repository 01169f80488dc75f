"""The poet dialect from Python: constructors, accessors, effects. Its text is tested with lit."""

import pytest
from xdsl.context import Context
from xdsl.dialects import test
from xdsl.dialects.builtin import Builtin, IntegerAttr, ModuleOp, StringAttr, TensorType, f32, i64
from xdsl.dialects.func import Func
from xdsl.ir import Region
from xdsl.parser import Parser
from xdsl.traits import is_side_effect_free
from xdsl.transforms.common_subexpression_elimination import cse
from xdsl.transforms.dead_code_elimination import dce
from xdsl.utils.exceptions import ParseError, VerifyException

from poetc.ir.poet import (
    ComputeOp,
    CostAttr,
    FreeOp,
    GraphOp,
    PageInOp,
    PageOutOp,
    PageType,
    Poet,
    ReturnOp,
    YieldOp,
    offset_of,
)

T = TensorType(f32, [4])


def identity(value, **options) -> ComputeOp:
    compute = ComputeOp("copy", [value], [value.type], **options)
    compute.block.add_op(YieldOp(compute.block.args[0]))
    return compute


def graph_of(make) -> GraphOp:
    """A graph from one tensor to one tensor, `make(argument)` giving its operations."""
    graph = GraphOp("main", ([T], [T]))
    ops = make(graph.arguments[0])
    graph.block.add_ops([*ops, ReturnOp(ops[-1].results[0])])
    return graph


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Poet):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def test_constructors_and_accessors():
    graph = GraphOp(
        "main",
        ([T, T], [T]),
        arg_attrs=[{}, {"poet.role": StringAttr("param"), "poet.updates": IntegerAttr(0, i64)}],
        res_attrs=[{"poet.name": StringAttr("['w']")}],
        attributes={"ram": IntegerAttr(64, i64)},
    )
    x, w = graph.arguments
    update = ComputeOp(
        "update",
        [x, w],
        [T],
        kernel="copy",
        inplace=[(0, 1)],
        cost=CostAttr(energy_nj=1, time_ns=2, workspace=3, flops=4),
        offsets=[16],
        workspace_offset=32,
    )
    update.block.add_op(YieldOp(update.block.args[0]))
    graph.block.add_ops([update, FreeOp(x), ReturnOp(update.results[0])])
    graph.verify()

    assert [graph.role(i) for i in range(2)] == ["input", "param"]
    assert [graph.updates(i) for i in range(2)] == [None, 0]
    assert graph.result_name(0) == "['w']"
    assert (graph.ram, graph.arena_bytes, graph.storage_bytes) == (64, None, None)
    assert graph.computes == (update,)
    assert graph.return_op.arguments == (update.results[0],)
    assert graph.is_scheduled

    assert update.label.data == "update"
    assert update.kernel is not None and update.kernel.string_value() == "copy"
    assert update.inplace_pairs == ((0, 1),)
    assert update.result_offsets == (16,)
    assert update.cost is not None
    cost = update.cost
    assert (cost.energy_nj, cost.time_ns, cost.workspace, cost.flops) == (1, 2, 3, 4)
    assert [argument.name_hint for argument in update.block.args] == ["a", "b"]

    update.inplace_pairs = ()
    update.result_offsets = None
    assert update.inplace is None and update.offsets is None


def test_argument_attributes_can_be_set_and_removed():
    graph = GraphOp("main", ([T, T], []))
    assert graph.arg_name(1) == "arg1"
    graph.set_arg_attr(1, "poet.offset", IntegerAttr(8, i64))
    graph.set_arg_attr(1, "poet.name", StringAttr("x"))
    assert (graph.offset(0), graph.offset(1), graph.arg_name(1)) == (None, 8, "x")
    graph.set_arg_attr(1, "poet.offset", None)
    graph.set_arg_attr(1, "poet.name", None)
    assert graph.arg_attrs is None


def test_offset_of():
    graph = GraphOp("main", ([T], []), arg_attrs=[{"poet.offset": IntegerAttr(0, i64)}])
    (x,) = graph.arguments
    planned, unplanned = identity(x, offsets=[16]), identity(x)
    page = PageOutOp(x, offset=64)
    again = PageInOp(page.page, offset=32)
    graph.block.add_ops([planned, unplanned, page, again, ReturnOp()])
    values = (x, planned.results[0], unplanned.results[0], page.page, again.tensor)
    assert [offset_of(value) for value in values] == [0, 16, None, 64, 32]


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_graph_is_scheduled_if_it_says_where_tensors_are(scheduled: bool):
    graph = graph_of(
        lambda x: (
            [identity(x), PageOutOp(x), FreeOp(x), identity(x)] if scheduled else [identity(x)]
        )
    )
    assert graph.is_scheduled == scheduled


def test_transfers_know_their_types():
    graph = GraphOp("main", ([T], []))
    page = PageOutOp(graph.arguments[0])
    assert page.page.type == PageType(T)
    assert PageInOp(page.page).tensor.type == T


def test_equal_computes_are_not_merged_but_unused_ones_are_dropped():
    def make(x):
        first, again, unused = identity(x), identity(x), identity(x)
        both = ComputeOp("both", [first.results[0], again.results[0]], [T])
        both.block.add_op(YieldOp(both.block.args[0]))
        return [unused, first, again, both]

    graph = graph_of(make)
    module = ModuleOp([graph])
    cse(module)
    dce(module)
    assert [compute.label.data for compute in graph.computes] == ["copy", "copy", "both"]
    assert not is_side_effect_free(graph.computes[0])


def test_equal_operations_within_a_body_are_merged():
    def make(x):
        compute = ComputeOp("twice", [x], [T])
        (a,) = compute.block.args
        first, again = test.TestPureOp([a], [T]), test.TestPureOp([a], [T])
        both = test.TestPureOp([first.results[0], again.results[0]], [T])
        compute.block.add_ops([first, again, both, YieldOp(both.results[0])])
        return [compute]

    graph = graph_of(make)
    cse(ModuleOp([graph]))
    assert len(list(graph.computes[0].block.ops)) == 3


def test_a_body_without_a_yield_does_not_verify():
    graph = graph_of(lambda x: [ComputeOp("empty", [x], [T])])
    with pytest.raises(VerifyException):
        graph.verify()


def test_a_graph_without_a_body_does_not_verify():
    with pytest.raises(VerifyException):
        GraphOp("main", ([T], []), Region()).verify()


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("poet.graph @g() {\n  %c = poet.compute () -> tensor<f32> {\n", 2, 21, "string literal"),
        ("poet.graph @g() {\n  poet.free %x\n", 3, 1, "Expected ':'"),
        ("poet.graph g() {}", 1, 12, "expect symbol name"),
        (
            'poet.graph @g(%x: tensor<f32>) {\n  poet.compute "c" (%x = %x : tensor<f32>) -> () {',
            2,
            21,
            "SSA value %x is already defined",
        ),
    ],
)
def test_parse_errors(text: str, line: int, column: int, message: str):
    with pytest.raises(ParseError) as error:
        parse(text)
    assert f":{line}:{column}" in str(error.value).splitlines()[0], str(error.value)
    assert message in error.value.msg, error.value.msg
