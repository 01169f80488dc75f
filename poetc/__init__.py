"""poetc: compile neural-network training steps for devices with very little memory."""

__version__ = "0.1.0"
