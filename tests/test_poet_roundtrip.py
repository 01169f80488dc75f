"""Random poet graphs survive printing and parsing, in pretty and in generic form."""

from io import StringIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_poet import poet_graphs
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.test import Test
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir.poet import GraphOp, Poet
from poetc.passes.poet_verify import verify_graph


def print_module(module: ModuleOp, generic: bool) -> str:
    stream = StringIO()
    Printer(stream, print_generic_format=generic).print_op(module)
    return stream.getvalue()


def parse_module(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Poet, Test):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["unscheduled", "scheduled", "planned", "split"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_round_trip(stage, data):
    module = data.draw(poet_graphs(stage)).parent_op()
    assert isinstance(module, ModuleOp)
    module.verify()
    pretty = print_module(module, generic=False)
    for generic in (False, True):
        again = parse_module(print_module(module, generic))
        again.verify()
        assert module.is_structurally_equivalent(again)
        assert print_module(again, generic=False) == pretty
        for graph in again.ops:
            assert isinstance(graph, GraphOp)
            verify_graph(graph)
