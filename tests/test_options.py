"""The table of options: those who take them take the same, with the same defaults."""

from __future__ import annotations

import ast
import inspect
import runpy
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from poetc.cli.compile import build_parser
from poetc.cli.profile import build_parser as profile_parser
from poetc.errors import InputError
from poetc.ir.text import make_context, parse_module
from poetc.options import OPTIONS, PASS, PROFILE, RELAX, Option
from poetc.passes.poet_schedule import PoetSchedulePass
from poetc.planning.problem import ScheduleOptions
from poetc.request import Options

ROOT = Path(__file__).parent.parent


def taken_by(taker: str) -> dict[str, Option]:
    return {name: option for name, option in OPTIONS.items() if taker in option.takers}


def test_defaults_are_what_the_documents_promise() -> None:
    """Of options that a user relies on, written down a second time on purpose."""
    asked = PoetSchedulePass()
    assert (asked.strategy, asked.paging, asked.remat) == ("auto", True, True)
    assert (asked.time_limit, asked.gap, asked.params) == (60.0, 0.01, "auto")
    assert OPTIONS["stack"].value() == 1024 and OPTIONS["device"].value() == "nrf52840"


def test_the_command_has_every_option_once() -> None:
    dests = [action.dest for action in build_parser()._actions]
    assert len(dests) == len(set(dests)) and set(OPTIONS) < set(dests)


def test_the_pass_has_the_options_that_the_table_says() -> None:
    defaults = {field.name: field.default for field in fields(PoetSchedulePass)}
    assert set(defaults) == set(taken_by(PASS))
    # A pass without a device has no storage, and no place to choose for inputs.
    for name, option in taken_by(PASS).items():
        assert name == "device" or defaults[name] == option.value(), name


def test_profile_has_the_options_that_the_table_says() -> None:
    dests = {action.dest for action in profile_parser()._actions}
    assert set(taken_by(PROFILE)) == dests & set(OPTIONS)


def test_poet_schedule_of_relax_has_them_too() -> None:
    pytest.importorskip("tvm")
    from poetc.tvm.schedule import PoetSchedule

    parameters = inspect.signature(PoetSchedule).parameters
    assert set(taken_by(RELAX)) == set(parameters) - {"functions"}
    for name in ("paging", "remat", "strategy", "time_limit", "stop", "threads", "gap"):
        assert parameters[name].default == OPTIONS[name].value(), name


@pytest.mark.parametrize("kind", [Options, ScheduleOptions])
def test_what_is_searched_has_the_same_defaults(kind: type) -> None:
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    for name, field in (("strategy",) * 2, ("time_limit", "time_limit_s"), ("gap", "gap")):
        assert defaults[field] == OPTIONS[name].value()


def test_the_document_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    assert runpy.run_path(str(ROOT / "docs" / "options_table.py"))["main"](["--check"]) == 0


def test_the_command_knows_no_backend_by_name() -> None:
    """`--emit` is compared with nothing but the default, as what it takes are files."""
    for path in (ROOT / "poetc" / "pipeline.py", *(ROOT / "poetc" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and "emit" in ast.unparse(node.left):
                assert not any(isinstance(c, ast.Constant) for c in node.comparators), path


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stop": "soon"}, "stop is clock or work, not soon"),
        ({"threads": 0}, "threads is 1 or 2, not 0"),
        ({"threads": -1}, "threads is 1 or 2, not -1"),
    ],
)
def test_what_no_search_has_is_refused(given: dict[str, Any], said: str) -> None:
    """By passes, too, which take any text and any number."""
    module = parse_module(
        "poet.graph @main(%x: tensor<4xf32>) -> (tensor<4xf32>) {\n"
        "  poet.return %x : tensor<4xf32>\n}"
    )
    with pytest.raises(InputError, match=said):
        PoetSchedulePass(**given).apply(make_context(), module)
    pytest.importorskip("tvm")
    from poetc.tvm.schedule import PoetSchedule

    with pytest.raises(InputError, match=said):
        PoetSchedule(**given)
