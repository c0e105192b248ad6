"""What the commands of a queue take and say."""

import pytest

from api.cli.job_documents import job_named
from artifacts.errors import InvalidInputError

ID = "01kam1v3mz4w0q3d5g7h9j2k4m"


def test_a_job_is_named_with_or_without_what_every_job_begins_with() -> None:
    assert job_named(ID) == job_named(f"job/{ID}") == f"job/{ID}"
    for other in (f"run/{ID}", f"job/{ID}a", ID[1:], ""):
        with pytest.raises(InvalidInputError, match="is no job"):
            job_named(other)
