"""Where each buffer lies: packing, its check, and moves."""
