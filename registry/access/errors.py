"""What somebody is told who may not do what they asked."""

from benchlock.artifacts.errors import InvalidInputError


class UnauthorizedError(InvalidInputError):
    """Nobody is known to be asking: there is no token, or one that is none, unknown, expired or revoked."""

    code = "unauthorized"


class ForbiddenError(InvalidInputError):
    """It is known who asks, and they may not."""

    code = "forbidden"


class TokenRefusedError(UnauthorizedError):
    """The token of a long-lived process, such as a worker, is not accepted any more: the process ends."""

    code = "token-refused"


class MachineRefusedError(ForbiddenError):
    """The token of a worker is valid, but may not speak for its machine: the worker ends."""

    code = "machine-refused"
