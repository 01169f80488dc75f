"""`poetc explain`: what it says helps does, and what it says is not enough is not."""

from __future__ import annotations

import json
import shlex
from functools import cache

import pytest
from conftest import ALL, MODELS, more

from poetc import explain as explain_module
from poetc.cli import main
from poetc.explain import Explanation, explain
from poetc.ir.text import read_module
from poetc.options import Given

GESTURE = str(MODELS / "gesture_mlp.mlir")


@cache
def explained(**options: str) -> Explanation:
    given = Given(options)
    module = read_module((MODELS / "gesture_mlp.mlir").read_bytes(), GESTURE)
    return explain(module, GESTURE, given, warn=lambda message: None)


QUICK = {"stop": "work", "time_limit": "10"}
"""With `by_work`: the same on any machine."""

TOO_SMALL = {"ram": "9KB", "params": "ram"}


@pytest.mark.slow
@pytest.mark.usefixtures("by_work")
@pytest.mark.parametrize("options", [TOO_SMALL, *more({"ram": "9600", "deadline": "1.02x"})])
def test_changes_do_what_is_said(
    options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line says the same of each change, when it is asked for it."""
    found = explained(**options, **QUICK)
    assert found.diagnosis is not None and found.changes
    json.dumps(found.to_json())
    if options is TOO_SMALL:
        text = found.to_text()
        # Tensors by name, with the bytes of their types: w of 36 x 32, x of 4 x 36, and so on.
        assert "4,608 B  [1]['l1']['w'] (read)" in text and "576 B  arg6 (read)" in text
        assert "Any one of these is enough" in text and "--params=auto" in text
    fits = [change.fits for change in found.changes]
    assert fits == sorted(fits, reverse=True), "what is enough comes first"
    energies = [change.energy_nj for change in found.changes if change.energy_nj is not None]
    assert energies == sorted(energies)
    some = (found.changes[0], found.changes[len(found.changes) // 2], found.changes[-1])
    for outcome in found.changes if ALL else some:
        dropped = [name for name, value in outcome.change.options if value is None]
        kept = [f"--{name}={text}" for name, text in options.items() if name not in dropped]
        asked = [word for word in shlex.split(outcome.change.text) if "=" in word]
        words = [f"--{name.replace('_', '-')}={text}" for name, text in QUICK.items()]
        status = main([GESTURE, *words, "--emit=report", *kept, *asked])
        out = capsys.readouterr().out
        if outcome.fits:
            assert status == 0 and json.loads(out)["energy_nj"] == outcome.energy_nj
        else:
            assert status in (3, 4)


@pytest.mark.slow
def test_storage_that_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --storage=none the step fits into the RAM of the README's first example."""
    (own,) = [
        outcome
        for outcome in explained(ram="9600", storage="none", time_limit="20").changes
        if outcome.change.options == (("storage", None),)
    ]
    assert main([GESTURE, "--ram=9600", "--time-limit=20", "--emit=report"]) == 0
    assert own.fits and own.energy_nj == json.loads(capsys.readouterr().out)["energy_nj"]


@pytest.mark.slow
def test_frozen_weights_on_storage() -> None:
    """In RAM there is one of 36 x 32 floats as a whole; in flash they take none, in tiles less."""
    limits = {"ram": "6KB", "frozen": "storage", "train": "[1]['l3']*"}
    limits |= {"stream": "never", "time_limit": "10"}
    found = {outcome.change.options: outcome for outcome in explained(**limits).changes}
    assert found[(("frozen", "auto"),)].fits and found[(("stream", "auto"),)].fits


def test_there_is_nothing_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", GESTURE]) == 0
    assert capsys.readouterr().out.startswith("There is a schedule: 10,")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["no.mlir"], "cannot read no.mlir"), ([GESTURE, "--ram=x"], "--ram=x")],
)
def test_bad_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_whole_kernels_hold_nothing_where_tiles_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is too little even in tiles, the largest kernel is not what holds the RAM."""
    monkeypatch.setattr(explain_module, "_changes", lambda *_: ())
    found = explained(ram="1700")
    assert found.diagnosis is not None and found.diagnosis.least_ram is not None
    assert found.diagnosis.least_ram.tiles and not found.holder
    assert explained(ram="1700", stream="never").holder
