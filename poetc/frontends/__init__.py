"""Training steps of JAX and PyTorch, written as the files that poetc compiles (docs/frontends.md).

Each frontend needs its framework, an optional extra of poetc, and imports it when it is called.
"""
