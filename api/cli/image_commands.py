"""image build: an environment of a framework, as wheels and as layers, published."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli import output
from api.cli.artifacts_commands import published_document, published_line
from api.cli.invocation import of

if TYPE_CHECKING:
    from evaluator.images.build import BuiltImage
    from registry.publishing import Draft


def register(app: typer.Typer) -> None:
    """Add the group of this module."""
    group = typer.Typer(help="Images: environments of frameworks.")
    group.command()(build)
    app.add_typer(group, name="image")


def build(  # noqa: PLR0913 - the options of a command
    context: typer.Context,
    framework: Annotated[str, typer.Argument(metavar="NAME==VERSION", help="Such as onnxruntime==1.31.1.")],
    device: Annotated[str, typer.Option(help="What the wheels are for.")] = "cpu",
    requirement: Annotated[list[str] | None, typer.Option(metavar="REQ", help="A further requirement.")] = None,
    find_links: Annotated[list[str] | None, typer.Option(metavar="DIR", help="A further folder of wheels.")] = None,
    index_url: Annotated[str | None, typer.Option(metavar="URL", help="The index, in place of pip's own.")] = None,
    base: Annotated[Path | None, typer.Option(metavar="TAR", help="A root file system; default: Debian's.")] = None,
    *,
    no_layers: Annotated[bool, typer.Option("--no-layers", help="Wheels alone: the image runs as processes.")] = False,
) -> None:
    """Resolve the wheels, assemble the layers, publish the image and, if missing, its framework."""
    from evaluator.images.build import Builder, BuildOptions  # noqa: PLC0415
    from evaluator.images.wheels import IndexOptions  # noqa: PLC0415
    from evaluator.images.workspaces import workspace  # noqa: PLC0415
    from registry.succession import publish_if_missing, publish_successor  # noqa: PLC0415

    invocation = of(context)
    registry = invocation.opened
    options = BuildOptions(
        device=device,
        requirements=tuple(requirement or ()),
        index=IndexOptions(find_links=tuple(find_links or ()), index_url=index_url),
        base=base,
        layers=not no_layers,
    )
    with workspace(registry.home / "builds") as folder:
        builder = Builder(folder, registry.home / "bases", registry.store, invocation.progress)
        built = builder.build(framework, options)
        draft, upstream = _drafts(built)
        image = publish_successor(draft, registry.store, registry.catalogue, progress=invocation.progress)
        added = publish_if_missing(upstream, registry.store, registry.catalogue)
    published = [image] if added is None else [image, added]
    if invocation.as_json:
        documents = [published_document(one) for one in published]
        output.print_json({"image": documents[0] | {"image_id": built.image_id}, "published": documents})
        return
    for one in published:
        typer.echo(published_line(one))
    if built.image_id is not None:
        typer.echo(f"image id {built.image_id}")


def _drafts(built: "BuiltImage") -> "tuple[Draft, Draft]":
    """The manifests as drafts whose relative sources start in the build's folder."""
    from registry.manifests import plain  # noqa: PLC0415
    from registry.publishing import Draft  # noqa: PLC0415

    image, framework = (
        Draft(
            manifest, json.dumps(plain(manifest), indent=2, ensure_ascii=False), built.folder / f"{manifest.kind}.yaml"
        )
        for manifest in (built.image, built.framework)
    )
    return image, framework
