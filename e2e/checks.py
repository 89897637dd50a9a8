"""What the Python parts share: one line for each check."""

import os

HTTP = int(os.environ["HTTP"])
RESP = int(os.environ["RESP"])


def same(name, wanted, got):
    """Prints that the check holds, or what was got instead."""
    if wanted == got:
        print(f"ok {name}", flush=True)
    else:
        print(f"FAILED {name}\n  wanted: {wanted!r}\n  got:    {got!r}", flush=True)


def error_of(call, *arguments):
    """What the call raises, as a text."""
    try:
        return f"no error: {call(*arguments)!r}"
    except Exception as error:  # Which one is for the check to say.
        return f"{type(error).__name__}: {error}"
