"""The place of each buffer in the arena: packing, its check, and moves."""
