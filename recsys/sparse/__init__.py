"""Embedding tables; the only place that knows fbgemm's details."""
