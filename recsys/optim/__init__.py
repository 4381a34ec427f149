"""Optimizers of the dense parts, and learning-rate schedules."""
