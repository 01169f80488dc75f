"""The plug-in of `xdsl-opt`: everything is there, and nothing heavy is imported for it."""

import subprocess
import sys

import pytest
from xdsl.passes import ModulePass
from xdsl.universe import Universe

from poetc.universe import UNIVERSE

HEAVY = ("highspy", "tvm", "jax", "torch", "numpy")


@pytest.mark.parametrize("name", UNIVERSE.all_passes)
def test_pass_is_there(name: str):
    pass_class = UNIVERSE.all_passes[name]()
    assert issubclass(pass_class, ModulePass)
    assert pass_class.name == name


@pytest.mark.parametrize("name", UNIVERSE.all_dialects)
def test_dialect_is_there(name: str):
    assert UNIVERSE.all_dialects[name]().name == name


def test_xdsl_finds_the_plug_in():
    everything = Universe.get_multiverse()
    assert UNIVERSE.all_passes.keys() <= everything.all_passes.keys()
    assert UNIVERSE.all_dialects.keys() <= everything.all_dialects.keys()


def test_the_plug_in_is_light():
    code = f"""
import sys
from poetc.universe import UNIVERSE
UNIVERSE.all_dialects["poet"]()
assert not [name for name in {HEAVY} if name in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
