"""Writes a software bill of materials, CycloneDX 1.6 as JSON, of the packages installed in a folder.

Python packages are listed by their metadata, and their binary contents by the lists in their wheels (PEP 770), which
for the broker are its Rust crates. The same folder makes the same bytes. It needs only Python.

    python3 tools/make_sbom.py --packages FOLDER --root penstock --output penstock.cdx.json

The rest of the image, Python itself and the distribution's packages, is not covered.
"""

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

JSON = dict[str, Any]
SPEC: Final = "1.6"
NAMESPACE: Final = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of URLs, RFC 9562
REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="a folder with installed packages")
    parser.add_argument("--root", required=True, help="the package that it is all for")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    document = bill_of(options.packages, options.root)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{options.output}: {len(document['components'])} components\n")
    return 0


def bill_of(packages: Path, root: str) -> JSON:
    """Return the bill. Raises SystemExit when the package is missing."""
    found = {canonical(str(metadata["Name"])): metadata for metadata in metadatas(packages)}
    if canonical(root) not in found:
        raise SystemExit(f"{root} is not installed in {packages}")
    components = {python_purl(metadata): python_component(metadata) for metadata in found.values()}
    edges = {python_purl(metadata): requirements(metadata, found) for metadata in found.values()}
    for folder in sorted(packages.glob("*.dist-info")):
        for carried in sorted(folder.glob("sboms/*.json")):
            add_carried(json.loads(carried.read_text()), owner_of(folder), components, edges)
    top = python_purl(found[canonical(root)])
    root_component = {**components.pop(top), "type": "application"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": {"component": root_component, "lifecycles": [{"phase": "build"}]},
        "components": [components[purl] for purl in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(edges[ref])} for ref in sorted(edges)],
    }
    content = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}"}


def metadatas(packages: Path) -> Iterator[Message]:
    for path in sorted(packages.glob("*.dist-info/METADATA")):
        yield HeaderParser().parsestr(path.read_text())


def owner_of(folder: Path) -> str:
    return python_purl(HeaderParser().parsestr((folder / "METADATA").read_text()))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def python_purl(metadata: Message) -> str:
    return f"pkg:pypi/{canonical(str(metadata['Name']))}@{metadata['Version']}"


def python_component(metadata: Message) -> JSON:
    purl = python_purl(metadata)
    component: JSON = {
        "type": "library",
        "bom-ref": purl,
        "purl": purl,
        "name": str(metadata["Name"]),
        "version": str(metadata["Version"]),
    }
    licences = licences_of(metadata)
    return {**component, "licenses": licences} if licences else component


def licences_of(metadata: Message) -> list[JSON]:
    """Return the expression, else the classifiers, else the first line of the text."""
    if metadata["License-Expression"]:
        return [{"expression": str(metadata["License-Expression"])}]
    lines = [str(line) for line in metadata.get_all("Classifier") or [] if str(line).startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in lines]
    text = str(metadata["License"] or "").strip().splitlines()
    return [{"license": {"name": name}} for name in names or text[:1]]


def requirements(metadata: Message, found: dict[str, Message]) -> set[str]:
    """Return the installed requirements, without those for other platforms and extras."""
    names = (REQUIREMENT.match(str(line)) for line in metadata.get_all("Requires-Dist") or [])
    known = (found.get(canonical(name[0])) for name in names if name is not None)
    return {python_purl(each) for each in known if each is not None}


def add_carried(carried: JSON, owner: str, components: dict[str, JSON], edges: dict[str, set[str]]) -> None:
    """Add the components of another bill of materials.

    Its references may be paths of the machine that built it: each component is referred to by its name in the package's
    ecosystem instead.
    """
    if carried.get("bomFormat") != "CycloneDX":
        return
    top = carried.get("metadata", {}).get("component", {})
    refs = {top.get("bom-ref"): owner}
    for component in carried.get("components", []):
        purl = plain_purl(component)
        refs[component.get("bom-ref")] = purl
        kept = {key: component[key] for key in ("name", "version", "licenses", "hashes") if component.get(key)}
        components.setdefault(purl, {"type": "library", "bom-ref": purl, "purl": purl, **kept})
        edges.setdefault(purl, set())
    for edge in carried.get("dependencies", []):
        ref = refs.get(edge.get("ref"))
        if ref is not None:
            edges[ref] |= {refs[each] for each in edge.get("dependsOn", []) if each in refs}


def plain_purl(component: JSON) -> str:
    """Return the purl without its download location."""
    given = str(component.get("purl") or f"pkg:generic/{component['name']}@{component.get('version', '')}")
    return re.split(r"[?#]", given, maxsplit=1)[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
