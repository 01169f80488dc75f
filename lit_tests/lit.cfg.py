"""lit configuration: IR in, IR out."""

import os

import lit.formats

config.name = "poetc"  # noqa: F821
config.test_source_root = os.path.dirname(__file__)
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.environment["PATH"] = os.environ["PATH"]  # noqa: F821
