"""Names from the input, whatever is in them: kept by the IR at every stage, never raw in C."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from c_support import COMPILERS, STRICT
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.backends.c.emit import generate
from poetc.backends.c.text import c_comment
from poetc.costmodel.device import load_device
from poetc.driver import compile_module
from poetc.image import layout_of
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, module_text, parse_module
from poetc.names import printable
from poetc.request import Options

NAMES = st.text(
    st.characters(codec="utf-8") | st.sampled_from('"\\*/?\n\x00\x1b\x7f\x85\u202e\u2028ö'),
    min_size=1,
    max_size=12,
)
NASTY = ("*/ #error", "/* /", "a\\", "??/", "\n#error x", '"', "\\u0041\x00\x1b[2J", "\u202e密ö")
"""What ends a comment or a string of C, goes on in the next line, or is a directive."""


def quoted(name: str, escape_all: bool) -> str:
    plain = re.compile(rb"[ !#-\[\]-~]")
    return "".join(
        chr(byte) if not escape_all and plain.match(bytes([byte])) else f"\\{byte:02X}"
        for byte in name.encode()
    )


def step(names: tuple[str, str], escape_all: bool = True) -> str:
    """A step that updates the first argument and reads the second, a parameter that is constant in
    C; both names are also those of results."""
    w, x = (quoted(name, escape_all) for name in names)
    return f"""\
func.func public @main(
    %w: tensor<4xf32> {{tf.aliasing_output = 1 : i32, poet.name = "{w}"}},
    %x: tensor<4xf32> {{poet.name = "{x}"}})
    -> (tensor<4xf32> {{jax.result_info = "{x}"}}, tensor<4xf32> {{jax.result_info = "{w}"}}) {{
  %0 = stablehlo.abs %x : tensor<4xf32>
  %1 = stablehlo.add %w, %0 : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}}
"""


def compiled(text: str, stages: dict[str, str]) -> ModuleOp:
    """The scheduled module with parameters on storage; `stages` gets the text after each pass."""
    module = parse_module(text)
    options = Options(
        device=load_device("nrf52840"),
        device_name="nrf52840",
        ram_bytes=4096,
        params="storage",
        time_limit_s=1,
    )

    def observe(step: ModulePass, module: ModuleOp, seconds: float) -> None:
        stages[step.name] = module_text(module)

    compile_module(make_context(), module, options, observe=observe)
    return module


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.tuples(NAMES, NAMES), st.booleans())
def test_names_are_kept_by_every_stage(names: tuple[str, str], escape_all: bool) -> None:
    stages: dict[str, str] = {}
    text = step(names, escape_all)
    assert module_text(parse_module(module_text(parse_module(text)))) == module_text(
        parse_module(text)
    )
    module = compiled(text, stages)
    assert {"stablehlo-to-poet", "poet-fuse", "poet-schedule", "poet-verify"} <= stages.keys()
    checked = 0
    for name, printed in stages.items():
        again = parse_module(printed)
        assert module_text(again) == printed, name
        for graph in graphs(again):
            assert (graph.arg_name(0), graph.arg_name(1)) == names, name
            checked += 1
    assert checked >= 5
    layout, again = layout_of(graphs(module)[0]), layout_of(graphs(parse_module(printed))[0])
    assert layout is not None and again is not None
    assert layout.identity == again.identity
    assert layout.tensors[0].name == again.tensors[0].name == names[0]


def test_other_names_are_another_layout() -> None:
    found = [layout_of(graphs(compiled(step((name, "x")), {}))[0]) for name in ("w", "ẇ", "\x00")]
    assert len({layout.identity for layout in found if layout is not None}) == 3


@given(NAMES)
def test_what_people_read_has_no_raw_control_characters(name: str) -> None:
    assert all(c == "\n" or c.isprintable() for c in printable(name))
    comment = c_comment(f"argument {name}")
    assert all(c == "\n" or c.isprintable() for c in comment)
    assert comment.startswith("/* ") and comment.index("*/") == len(comment) - 2
    assert "/*" not in comment[2:] and "??" not in comment


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.tuples(NAMES | st.sampled_from(NASTY), NAMES | st.sampled_from(NASTY)))
def test_files_of_any_names_have_no_raw_control_characters(names: tuple[str, str]) -> None:
    files = generate(compiled(step(names), {}))
    for file, text in files.items():
        assert all(c in "\n\t" or c.isprintable() for c in text), file
    tensors, image = (json.loads(files[f"model_{kind}.json"]) for kind in ("tensors", "image"))
    assert [argument["name"] for argument in tensors["arguments"]] == list(names)
    assert image["tensors"][0]["name"] == names[0]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_c_of_nasty_names_compiles(compiler: str, tmp_path: Path) -> None:
    """With warnings of comments in comments, lines that go on, trigraphs and bidi characters."""
    sources: list[Path] = []
    for number, names in enumerate(zip(NASTY, reversed(NASTY), strict=True)):
        module = compiled(step(names), {})
        out = tmp_path / str(number)
        out.mkdir()
        for file, text in generate(module).items():
            (out / file).write_text(text, encoding="utf-8")
        sources += [out / file for file in ("model.c", "model_kernels.c", "main.c")]
    command = [compiler, *STRICT, "-Wtrigraphs", "-Wcomment", "-fsyntax-only", *map(str, sources)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
