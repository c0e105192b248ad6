"""Whether what ran is what the lock says, as far as only the run can tell."""

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.runner.ending import Failure
from benchlock.evaluator.runner.results import Package, Result
from benchlock.registry.hosts import CPU
from benchlock.registry.lockfile import LockedPlatform
from benchlock.registry.manifests import Framework
from benchlock.registry.versions import from_pep440, parse_version


def misfit(result: Result, platform: LockedPlatform, framework: Framework) -> Failure | None:
    """Why the figures are not those of the lock's device or framework; None where they are.

    An image that is built from wheels has the framework that was resolved; of a finished one its maker says which.
    """
    ran = result.environment.device
    if platform.device not in (CPU, ran):
        return Failure("load", f"the model ran on the device {ran or CPU}, and {platform.device} is locked")
    if not platform.finished:
        return None
    found = [one for one in result.environment.packages if one.name in framework.distributions]
    if any(_is(one, framework.version) for one in found):
        return None
    has = ", ".join(f"{one.name} {one.version}" for one in found) or f"none of {', '.join(framework.distributions)}"
    return Failure("load", f"the image provides {framework.name} {framework.version} by its manifest, and has {has}")


def _is(package: Package, version: str) -> bool:
    try:
        return from_pep440(package.version) == parse_version(version)
    except InvalidInputError:
        return False
