"""Errors whose message is meant for the person who ran the command."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in the input or the configuration, told in one message without a traceback.

    The message names the place (file and line, column, or config key) and what to do about it.
    ``train.py`` and the scripts print it and end with status 1.
    """


class DataError(UserError):
    """Input data that cannot be used as it is; nothing was skipped or replaced."""


class ConfigError(UserError):
    """A configuration that cannot be run; names the config key and the valid choices."""


class NonFiniteError(UserError):
    """A loss became NaN or infinite; names the part it came from and the step."""


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or used; names the folder or file and what is wrong with it."""
