"""Ways to run a kernel in less RAM: which operands and results stay on storage, and in which tiles
it then runs (docs/streaming.md)."""
