"""Executors: what runs a program."""
