"""Rules that a manifest breaks although some of its keys are missing, unknown or wrong."""

from msgspec import inspect

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.registry.manifests.checks import check
from benchlock.registry.manifests.others import Manifest
from benchlock.registry.manifests.steps import TensorStep
from benchlock.registry.partial import convert_known
from benchlock.registry.problems import UnknownValueError
from benchlock.registry.yaml import Document


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
