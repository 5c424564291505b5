"""What ends a run: one line for whoever typed the command."""


class Failure(Exception):
    """``str()`` is one clear line: what is wrong, and what to do about it."""
