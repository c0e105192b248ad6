"""Croissant metadata as a source of dataset manifests; what a manifest cannot have is refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import publish
from benchlock.registry.scaffold.manifest_scaffold import ManifestScaffold, scaffold_manifest
from benchlock.registry.text.yaml import read_yaml

Document = dict[str, Any]


def table(folder: Path) -> bytes:
    """A Parquet file of two encoded pictures, as the Hub converts them."""
    path = folder / "data" / "test.parquet"
    path.parent.mkdir(exist_ok=True)
    pictures = [{"bytes": b"one", "path": "1.png"}, {"bytes": b"two", "path": "2.png"}]
    parquet.write_table(pa.table({"image": pictures, "label": [3, 4]}), path)
    return path.read_bytes()


def metadata(**changed: object) -> Document:
    """Metadata of a Parquet file, as a tool writes it."""
    source = {"fileObject": {"@id": "table"}}
    return {
        "@context": {"@vocab": "https://schema.org/", "cr": "http://mlcommons.org/croissant/"},
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "org/Tiny Pictures",
        "version": "1.2",
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "description": "Two\n pictures.",
        "distribution": [
            {"@type": "cr:FileObject", "@id": "table", "name": "table", "contentUrl": "data/test.parquet",
             "encodingFormat": "application/x-parquet"},
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": "default", "field": [
                {"@type": "cr:Field", "@id": "default/image", "dataType": "sc:ImageObject",
                 "source": source | {"extract": {"column": "image"}, "transform": {"jsonPath": "bytes"}}},
                {"@type": "cr:Field", "@id": "default/digit", "dataType": ["sc:Integer", "cr:Label"],
                 "source": source | {"extract": {"column": "label"}}},
                {"@type": "cr:Field", "@id": "default/split", "dataType": "cr:Split", "references": {}},
            ]},
            {"@type": "cr:RecordSet", "@id": "splits", "dataType": "cr:Split", "data": [{"name": "test"}]},
        ],
    } | changed  # fmt: skip


def written(folder: Path, document: object) -> ManifestScaffold:
    path = folder / "croissant.json"
    path.write_text(json.dumps(document))
    return scaffold_manifest("dataset", path, folder)


def manifest(scaffold: ManifestScaffold) -> Any:  # noqa: ANN401 - YAML
    return read_yaml(scaffold.text, "manifest.yaml").value


def test_the_files_of_a_file_set_are_found_beside_the_metadata(tmp_path: Path) -> None:
    """As the Hub writes it: a repository, and a FileSet of Parquet files, a folder for each split."""
    content = table(tmp_path)
    for split in ("train", "test"):
        (tmp_path / "default" / split).mkdir(parents=True)
        (tmp_path / "default" / split / "0000.parquet").write_bytes(content)
    document = metadata()
    document["distribution"] = [
        {"@type": "cr:FileObject", "@id": "repo", "contentUrl": "https://example.org/", "encodingFormat": "git+https"},
        {"@type": "cr:FileSet", "@id": "files", "containedIn": {"@id": "repo"}, "includes": "default/*/*.parquet",
         "encodingFormat": "application/x-parquet"},
    ]  # fmt: skip
    for field in document["recordSet"][0]["field"][:2]:
        field["source"] = {key: value for key, value in field["source"].items() if key != "fileObject"}
        field["source"]["fileSet"] = {"@id": "files"}
    made = manifest(written(tmp_path, document))
    assert {name: split["file"] for name, split in made["splits"].items()} == {
        "test": "default/test/0000.parquet",
        "train": "default/train/0000.parquet",
    }
    sources = [file["source"] for file in made["files"]]
    assert sources == ["./default/test/0000.parquet", "./default/train/0000.parquet"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_parquet_file_is_published(version: str, tmp_path: Path, store: LocalStore, catalogue: Catalogue) -> None:
    content = table(tmp_path)
    document = metadata(conformsTo=["http://example.org/", f"http://mlcommons.org/croissant/{version}"])
    document["distribution"][0]["sha256"] = to_hex(digest_bytes(content))
    scaffold = written(tmp_path, document)
    assert scaffold.todos == 0
    assert manifest(scaffold) == {
        "schema": 1, "kind": "dataset", "name": "tiny-pictures", "version": "1.2.0", "license": "CC-BY-4.0",
        "description": "Two pictures.", "format": "parquet",
        "splits": {
            "test": {"file": "test.parquet", "fields": {"image": "image.bytes", "label": "label"}, "samples": 2}
        },
        "files": [
            {"path": "test.parquet", "source": "./data/test.parquet", "sha256": to_hex(digest_bytes(content))}
        ],
    }  # fmt: skip
    draft = read_draft(scaffold.text, "manifest.yaml", tmp_path / "manifest.yaml")
    assert publish(draft, store, catalogue).changed


def test_a_file_at_an_address_keeps_its_address_and_digest(tmp_path: Path) -> None:
    document = metadata()
    document["distribution"][0] |= {"contentUrl": "https://example.org/a/val.parquet?x=1", "sha256": "0" * 64}
    scaffold = written(tmp_path, document)
    assert manifest(scaffold)["files"] == [
        {"path": "val.parquet", "source": "https://example.org/a/val.parquet?x=1", "sha256": "0" * 64}
    ]
    assert [finding.path for finding in scaffold.findings if finding.todo] == ["splits.samples"]
    (tmp_path / "inner").mkdir()
    indirect = tmp_path / "inner" / ".." / "croissant.json"
    assert "https://example.org/a/val.parquet?x=1" in scaffold_manifest("dataset", indirect, tmp_path).text


def test_json_lines_are_read_by_their_keys(tmp_path: Path) -> None:
    (tmp_path / "reviews.jsonl").write_text('{"text": "good", "mark": 1}\n{"text": "bad", "mark": 0}\n')
    fields = [
        {"name": "text", "source": {"fileObject": "reviews", "extract": {"jsonPath": "$.text"}}},
        {"name": "label", "source": {"fileObject": "reviews", "extract": {"jsonPath": "mark"}}},
    ]
    file = {"@type": "FileObject", "name": "reviews", "contentUrl": "./reviews.jsonl", "encodingFormat": "x"}
    document = manifest(written(tmp_path, metadata(distribution=file, recordSet={"name": "all", "field": fields})))
    assert document["format"] == "jsonl"
    assert document["splits"]["all"] == {
        "file": "reviews.jsonl", "fields": {"text": "text", "label": "mark"}, "samples": 2
    }  # fmt: skip


def test_a_csv_of_files_becomes_an_index(tmp_path: Path, store: LocalStore, catalogue: Catalogue) -> None:
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "images" / name).write_bytes(name.encode())
    (tmp_path / "test.csv").write_text("picture,kind\nimages/a.png,0\nimages/b.png,1\n")
    source = {"fileObject": {"@id": "csv"}}
    fields = [
        {"@id": "r/p", "dataType": "sc:ImageObject", "source": source | {"extract": {"column": "picture"}}},
        {"@id": "r/k", "dataType": "cr:Label", "source": source | {"extract": {"column": "kind"}}},
    ]
    file = {"@type": "cr:FileObject", "@id": "csv", "contentUrl": "test.csv", "encodingFormat": "text/csv"}
    scaffold = written(tmp_path, metadata(distribution=[file], recordSet=[{"@id": "r", "field": fields}]))
    for path, text in scaffold.files.items():
        (tmp_path / path).write_text(text)
    assert manifest(scaffold)["splits"] == {"test": {"index": "test.csv", "samples": 2}}
    assert [*scaffold.files.values()] == ["path,label\nimages/a.png,0\nimages/b.png,1\n"]
    draft = read_draft(scaffold.text, "manifest.yaml", tmp_path / "manifest.yaml")
    assert publish(draft, store, catalogue).changed


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"license": "https://choosealicense.com/licenses/mit/"}, {"license": "MIT"}),
        ({"license": ["https://www.apache.org/licenses/LICENSE-2.0"]}, {"license": "Apache-2.0"}),
        ({"license": "https://creativecommons.org/publicdomain/zero/1.0/"}, {"license": "CC0-1.0"}),
        ({"license": "https://spdx.org/licenses/BSD-3-Clause.html"}, {"license": "BSD-3-Clause"}),
        ({"license": ["MIT", "Apache-2.0"]}, {"license": None}),
        ({"license": "https://example.org/terms"}, {"license": None}),
        ({"version": 3}, {"version": "3.0.0"}),
        ({"version": "latest"}, {"version": "1.0.0"}),
        ({"description": "x" * 3000}, {"description": None}),
        ({"name": "日本"}, {"name": None}),
    ],
)
def test_what_the_metadata_states_of_the_dataset(
    changes: Mapping[str, object], expected: Mapping[str, object], tmp_path: Path
) -> None:
    table(tmp_path)
    document = manifest(written(tmp_path, metadata(**changes)))
    assert {key: document.get(key) for key in expected} == expected


def field_of(document: Document, number: int = 0) -> Document:
    field: Document = document["recordSet"][0]["field"][number]
    return field


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(conformsTo="http://mlcommons.org/croissant/2.0"), "Croissant 2.0 is not supported"),
        (lambda d: d.update(recordSet=[]), "no record set reads a Parquet, JSON Lines or CSV file"),
        (lambda d: d.update(recordSet=[1]), "recordSet is not a list of at most 1000 objects"),
        (lambda d: d.update(recordSet=d["recordSet"][:1] * 2), "several record sets read the file table"),
        (lambda d: d.update(distribution=[]), "no file has the id table"),
        (lambda d: d["distribution"][0].update(containedIn={"@id": "zip"}), "a part of an archive or repository"),
        (lambda d: d["distribution"][0].update({"@type": "cr:FileSet", "includes": "x/*.parquet"}), "0 files beside"),
        (lambda d: d["distribution"][0].update({"@type": "cr:FileSet", "includes": "**"}), "a pattern with"),
        (lambda d: d["distribution"][0].update({"@type": "cr:FileSet", "includes": ["../*"]}), "a pattern with"),
        (lambda d: d["distribution"][0].update({"@type": "cr:FileSet", "includes": ["", "\0"]}), "a pattern with"),
        (lambda d: d["distribution"][0].update(containedIn={"@id": "repo"}), "a part of an archive or repository"),
        (lambda d: d["distribution"][0].update(contentUrl="x.zip", encodingFormat="application/zip"),
         "table is not Parquet, JSON Lines or CSV, but application/zip"),
        (lambda d: d["distribution"][0].update(contentUrl="gone.parquet"), "gone.parquet not found beside"),
        (lambda d: d["distribution"][0].update(contentUrl="../test.parquet"), "path"),
        (lambda d: d["distribution"][0].update(contentUrl="/data/test.parquet"), "path"),
        (lambda d: d["distribution"][0].update(contentUrl="http://example.org/x.parquet", sha256="0" * 64),
         "is not an https: URL"),
        (lambda d: d["distribution"][0].update(contentUrl="https://example.org/x.parquet", sha256="of issue 80"),
         "x.parquet has no valid sha256"),
        (
            lambda d: field_of(d).update(source={"fileSet": {"@id": "f"}, "extract": {"fileProperty": "content"}}),
            "reads a FileSet",
        ),
        (lambda d: field_of(d).pop("source"), "has no source"),
        (lambda d: field_of(d)["source"].update(transform={"regex": "(.*)"}), "a transformation that is not a key"),
        (lambda d: field_of(d)["source"].update(extract={"fileProperty": "content"}), "does not read a column or key"),
        (lambda d: field_of(d)["source"].update(fileObject="other"), "reads 2 files"),
        (lambda d: field_of(d).update(dataType="cr:Label"), "two fields are called label"),
    ],
)  # fmt: skip
def test_what_a_manifest_cannot_have_is_refused(
    change: Callable[[Document], object], message: str, tmp_path: Path
) -> None:
    table(tmp_path)
    document = metadata()
    change(document)
    with pytest.raises(InvalidInputError) as caught:
        written(tmp_path, document)
    assert message in str(caught.value)
    assert caught.value.next_step


def test_files_of_two_formats_are_refused(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    document = metadata()
    document["distribution"].append({"@type": "cr:FileObject", "@id": "lines", "contentUrl": "a.jsonl"})
    field = {"@id": "b/x", "source": {"fileObject": {"@id": "lines"}, "extract": {"jsonPath": "x"}}}
    document["recordSet"].append({"@id": "b", "field": [field]})
    with pytest.raises(InvalidInputError, match=r"the record sets read 2 files: test\.parquet, a\.jsonl"):
        written(tmp_path, document)


def test_two_files_of_one_split_are_refused(tmp_path: Path) -> None:
    nodes: list[Document] = []
    sets: list[Document] = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"x": 1}\n')
        nodes.append({"@type": "cr:FileObject", "@id": name, "contentUrl": f"{name}.jsonl"})
        field = {"@id": f"{name}/x", "source": {"fileObject": {"@id": name}, "extract": {"jsonPath": "x"}}}
        sets.append({"@id": name, "field": [field]})
    with pytest.raises(InvalidInputError, match=r"a\.jsonl and b\.jsonl are both of the split all"):
        written(tmp_path, metadata(distribution=nodes, recordSet=sets))


@pytest.mark.parametrize("content", ["[", "[]", "[" * 100_000, '{"conformsTo": 1}'])
def test_other_json_is_read_as_annotations(content: str, tmp_path: Path) -> None:
    (tmp_path / "croissant.json").write_text(content)
    with pytest.raises(InvalidInputError, match="not a valid COCO annotation file"):
        scaffold_manifest("dataset", tmp_path / "croissant.json", tmp_path)
