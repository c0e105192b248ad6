"""Names of samples in a dataset without labels, which the runner uses too."""

_FOLDER_SIZE = 1000


def sample_path(number: int) -> str:
    """Return where the shown sample of that number lies: a name that says nothing of it."""
    return f"samples/{number // _FOLDER_SIZE:06}/{number:09}"
