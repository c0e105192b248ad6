"""The ``image build`` command: the environment of a framework, as wheels and image layers."""

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.publish_command import published_document, published_line
from benchlock.api.evaluation.image_building import build_image
from benchlock.api.local.container_registry_access import connect_repository
from benchlock.evaluator.images.base_image import parse_base
from benchlock.evaluator.images.build import BuildOptions
from benchlock.evaluator.images.wheels import IndexOptions
from benchlock.registry.manifests import plain


@click.group(no_args_is_help=False)
def image() -> None:
    """Build images: the environments of frameworks."""


@image.command()
@click.argument(
    "framework",
    metavar="NAME[==VERSION]",
    help="Framework, such as onnxruntime==1.31.1; without a version, the newest release that fits the harness.",
)
@click.option("--device", default="cpu", show_default=True, help="Device that the wheels are for.")
@click.option("--requirement", metavar="REQ", multiple=True, help="Additional requirement; may be repeated.")
@click.option("--find-links", metavar="DIR", multiple=True, help="Additional folder of wheels; may be repeated.")
@click.option("--index-url", metavar="URL", help="Package index to use instead of pip's default.")
@click.option(
    "--base", metavar="TAR|IMAGE", help="Base: a root file-system tarball or HOST/NAME@sha256:…; default: Debian."
)
@click.option("--no-layers", is_flag=True, help="Build wheels only; the image then runs only as processes.")
@click.pass_obj
def build(  # noqa: PLR0913 - the options of a command
    invocation: Invocation,
    framework: str,
    device: str,
    requirement: tuple[str, ...],
    find_links: tuple[str, ...],
    index_url: str | None,
    base: str | None,
    *,
    no_layers: bool,
) -> None:
    """Build and publish an image of a framework.

    Resolves the wheels, assembles the layers, and publishes the framework, too, if it is missing.

    Example: benchlock image build onnxruntime==1.31.1
    """
    options = BuildOptions(
        device=device,
        requirements=requirement,
        index=IndexOptions(find_links=find_links, index_url=index_url),
        base=None if base is None else parse_base(base, connect_repository),
        layers=not no_layers,
    )
    steps, transfers = output.Bars(lines=True), invocation.progress
    published = build_image(invocation.opened, framework, options, steps=steps, transfers=transfers)
    image_id = published.built.image_id
    if invocation.as_json:
        documents = [published_document(result) for result in published.results]
        provides = plain(published.built.image.provides)
        output.print_json(
            {"image": documents[0] | {"image_id": image_id, "provides": provides}, "published": documents}
        )
        return
    if "=" not in framework:
        output.echo(f"newest release that fits: {published.framework}")
    for result in published.results:
        output.echo(published_line(result))
    if image_id is not None:
        output.echo(f"image id {image_id}")
