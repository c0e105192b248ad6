"""The ``image build`` command: the environment of a framework, as wheels and image layers."""

import json

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.publish_command import published_document, published_line
from benchlock.api.local.container_registry_access import connect_repository
from benchlock.evaluator.images.base_image import parse_base
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage
from benchlock.evaluator.images.external_tools import workspace
from benchlock.evaluator.images.wheels import IndexOptions
from benchlock.registry.manifests import plain
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import Draft, publish_if_missing, publish_successor


@click.group(no_args_is_help=False)
def image() -> None:
    """Build images: the environments of frameworks."""


@image.command()
@click.argument("framework", metavar="NAME==VERSION", help="Framework and version, such as onnxruntime==1.31.1.")
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
    registry = invocation.opened
    options = BuildOptions(
        device=device,
        requirements=requirement,
        index=IndexOptions(find_links=find_links, index_url=index_url),
        base=None if base is None else parse_base(base, connect_repository),
        layers=not no_layers,
    )
    with workspace(registry.home / "builds") as folder:
        builder = Builder(folder, registry.home / "bases", registry.store, output.Bars(lines=True))
        built = builder.build(framework, options)
        draft, upstream = _drafts(built)
        image = publish_successor(draft, registry.store, registry.catalogue, progress=invocation.progress)
        upstream_result = publish_if_missing(upstream, registry.store, registry.catalogue)
    published = [image] if upstream_result is None else [image, upstream_result]
    if invocation.as_json:
        documents = [published_document(result) for result in published]
        output.print_json({"image": documents[0] | {"image_id": built.image_id}, "published": documents})
        return
    for result in published:
        output.echo(published_line(result))
    if built.image_id is not None:
        output.echo(f"image id {built.image_id}")


def _drafts(built: BuiltImage) -> tuple[Draft, Draft]:
    """Return the manifests as drafts whose relative sources start in the build's folder."""
    paths = [built.folder / f"{manifest.kind}.yaml" for manifest in (built.image, built.framework)]
    texts = [json.dumps(plain(manifest), indent=2, ensure_ascii=False) for manifest in (built.image, built.framework)]
    image, framework = (read_draft(text, str(path), path) for text, path in zip(texts, paths, strict=True))
    return image, framework
