"""Names from the input, whatever is in them: kept by the IR, never raw in what people read."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from poetc.backends.c.printer import c_comment
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, module_text, parse_module
from poetc.names import printable
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass

NAMES = st.text(
    st.characters(codec="utf-8") | st.sampled_from('"\\*/?\n\x00\x1b\x7f\x85\u202e\u2028ö'),
    min_size=1,
    max_size=12,
)


def quoted(name: str, escape_all: bool) -> str:
    plain = re.compile(rb"[ !#-\[\]-~]")
    return "".join(
        chr(byte) if not escape_all and plain.match(bytes([byte])) else f"\\{byte:02X}"
        for byte in name.encode()
    )


@settings(max_examples=100, deadline=None)
@given(NAMES, st.booleans())
def test_names_are_kept_through_every_round_trip(name: str, escape_all: bool) -> None:
    literal = quoted(name, escape_all)
    text = f"""\
func.func public @main(%x: tensor<f32> {{poet.name = "{literal}"}}) -> tensor<f32> {{
  %0 = stablehlo.abs %x : tensor<f32>
  return %0 : tensor<f32>
}}
"""
    module = parse_module(parse_again := module_text(parse_module(text)))
    assert module_text(module) == parse_again
    StableHLOToPoetPass().apply(make_context(), module)
    for _ in range(2):
        assert graphs(module)[0].param_name(0) == name
        module = parse_module(module_text(module))


@given(NAMES)
def test_what_people_read_has_no_raw_control_characters(name: str) -> None:
    assert all(c == "\n" or c.isprintable() for c in printable(name))
    comment = c_comment(f"argument {name}")
    assert all(c == "\n" or c.isprintable() for c in comment)
    assert comment.startswith("/* ") and comment.index("*/") == len(comment) - 2
    assert "/*" not in comment[2:] and "??" not in comment
