"""Rules that a manifest breaks although some of its keys are missing, unknown or wrong."""

from msgspec import inspect

from artifacts.errors import BenchlockError, InvalidInputError
from registry.manifests.checks import check
from registry.manifests.others import Manifest
from registry.manifests.steps import TensorStep
from registry.partial import convert_known
from registry.problems import UnknownValueError
from registry.yaml import Document


def find_certain_problems(document: Document) -> tuple[BenchlockError, ...]:
    """Find the rules that are broken by values that are valid themselves.

    A rule that reads a value that is missing or wrong, or that an unknown key may have been meant for, says nothing.
    """
    try:
        check(convert_known(document.value, inspect.type_info(Manifest), (TensorStep,)), document, published=False)
    except UnknownValueError:
        return ()
    except InvalidInputError as error:
        problems, error.problems = error.problems or (error,), ()  # each stands for itself
        return problems
    return ()
