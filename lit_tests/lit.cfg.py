"""lit configuration: IR in, IR out."""

# pyright: reportUndefinedVariable=false

import os
import sys
from pathlib import Path

import lit.formats

config.name = "poetc"  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
# The tools of the Python that runs lit, also where its environment is not activated.
tools = str(Path(sys.executable).parent)
config.environment["PATH"] = os.pathsep.join([tools, os.environ["PATH"]])  # noqa: F821
# The tools find the same poetc as the Python that runs lit.
if "PYTHONPATH" in os.environ:
    config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]  # noqa: F821
