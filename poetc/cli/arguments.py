"""The parser that all command lines share, and the options of the table that are given."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import NoReturn

from poetc.errors import InputError
from poetc.options import OPTIONS, Given, Option

MAY_BE_EMPTY = ("cflags",)
"""Options whose empty value means something."""


class Parser(argparse.ArgumentParser):
    """A command line, of which whatever is wrong is one InputError with one line."""

    def error(self, message: str) -> NoReturn:
        """Refuses bad usage. argparse calls it."""
        raise InputError(f"{message}; see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments. Raises InputError for values that are empty, or nobody can read."""
        arguments = self.parse_args(words)
        for action in self._actions:
            value = getattr(arguments, action.dest, None)
            name = action.option_strings[-1] if action.option_strings else f"{action.dest}"
            if value == [] or (value == "" and action.dest not in MAY_BE_EMPTY):
                raise InputError(f"{name} is given without a value; see {self.prog} --help")
            if isinstance(value, str) and any(ord(c) < 32 or ord(c) == 127 for c in value):
                raise InputError(f"{name}={value!a}: control characters")
        return arguments

    def add_options(self, options: Iterable[Option]) -> None:
        """Adds options of the table, all None if not given."""
        for option in options:
            self.add_argument(
                option.flag,
                metavar=option.metavar,
                choices=option.choices,
                help=option.help.format(default=option.default).replace("%", "%%"),
            )


def given(arguments: argparse.Namespace) -> Given:
    """The options of the table that are on the command line."""
    texts = {name: getattr(arguments, name, None) for name in OPTIONS}
    return Given({name: text for name, text in texts.items() if text is not None})
