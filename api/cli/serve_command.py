"""serve: the registry over HTTP, until the process is told to end."""

import click

from benchlock.api.cli.invocation import Invocation
from benchlock.artifacts.errors import InvalidInputError

_PROXY = "A proxy in front, or the network where it is: X-Forwarded-For of such a one says who asks. May be repeated."


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The port.")
@click.option("--open", "is_open", is_flag=True, help="Let in whoever reaches it, without a token: on loopback alone.")
@click.option("--proxy", "proxies", multiple=True, help=_PROXY, metavar="ADDRESS")
@click.pass_obj
def serve(invocation: Invocation, host: str, port: int, proxies: tuple[str, ...], *, is_open: bool) -> None:
    """Serve the registry over HTTP; the OpenAPI document is at /v1/openapi.json."""
    from benchlock.api.http.app import create_app  # noqa: PLC0415 - no other command needs a server
    from benchlock.api.http.guards import Open, is_loopback  # noqa: PLC0415
    from benchlock.api.http.logs import log, log_to_stderr  # noqa: PLC0415
    from benchlock.api.http.serving import serve as serve_app  # noqa: PLC0415
    from benchlock.api.instances import running_service  # noqa: PLC0415
    from benchlock.api.wiring import now, open_tokens  # noqa: PLC0415
    from benchlock.registry.access.gate import Gate  # noqa: PLC0415

    log_to_stderr()
    if is_open and not is_loopback(host):
        raise InvalidInputError(
            f"--open lets in whoever reaches {host}, and that may be anyone",
            where=f"--host {host}",
            next_step="leave --open out, so that tokens are asked for, or listen at 127.0.0.1",
        )
    if is_open and proxies:
        raise InvalidInputError(
            "--open lets in whoever the proxy sends on, and that may be anyone",
            where=f"--proxy {proxies[0]}",
            next_step="leave --open out, so that tokens are asked for, or leave --proxy out",
        )
    registry = invocation.open_folder(log.info)
    with running_service(registry.home, registry.database):
        app = create_app(registry, authority=Open(local=True) if is_open else Gate(open_tokens(registry), now))
        place = f"[{host}]" if ":" in host else host
        url = f"http://{place}:{port}"
        started = {"url": url, "registry": str(registry.home)}
        serve_app(app, host, port, lambda: log.info(f"serving at {url}", extra={"fields": started}), proxies)
