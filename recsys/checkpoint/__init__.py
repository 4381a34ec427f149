"""Checkpoints: written whole or not at all, checked before a byte is used, nothing pickled; see docs/faults.md."""
