"""Writes an OCI image archive from a root directory, without docker or buildah, for `ctr images import`.

Run `mkimage.py NAME ROOT OUT.tar [--entrypoint COMMAND ARGUMENT...]`. Layers are not compressed: an import only copies.
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path
from typing import Any

PATH = "PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image"


def main(name: str, root: Path, out: Path, entrypoint: list[str]) -> None:
    layer = out.with_suffix(".layer")
    write_layer(root, layer)
    try:
        write_archive(name, layer, out, entrypoint)
    finally:
        layer.unlink()
    print(f"{name} {out.stat().st_size / 1e6:.1f} MB")


def write_layer(root: Path, layer: Path) -> None:
    def reset(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, arcname=path.name, filter=reset)


def write_archive(name: str, layer: Path, out: Path, entrypoint: list[str]) -> None:
    with layer.open("rb") as content:
        diff = hashlib.file_digest(content, "sha256").hexdigest()
    architecture = ARCHITECTURES[platform.machine()]
    config = encoded(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": [PATH], **({"Entrypoint": entrypoint} if entrypoint else {})},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
            # A builder that adds layers counts those of the history.
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "mkimage.py"}],
        }
    )
    manifest = encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": described(f"{OCI}.config.v1+json", config),
            "layers": [
                {
                    "mediaType": f"{OCI}.layer.v1.tar",
                    "digest": f"sha256:{diff}",
                    "size": layer.stat().st_size,
                }
            ],
        }
    )
    annotations = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1],
    }
    entry = described(f"{OCI}.manifest.v1+json", manifest) | {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": annotations,
    }
    index = encoded({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [entry]})
    with tarfile.open(out, "w") as archive:
        for path, data in (
            ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
            ("index.json", index),
            (blob(config), config),
            (blob(manifest), manifest),
        ):
            put(archive, path, io.BytesIO(data), len(data))
        with layer.open("rb") as content:
            put(archive, f"blobs/sha256/{diff}", content, layer.stat().st_size)


def encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def described(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def blob(data: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"


def put(archive: tarfile.TarFile, path: str, content: Any, size: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = size
    archive.addfile(entry, content)


if __name__ == "__main__":
    name, root, out = sys.argv[1:4]
    main(name, Path(root), Path(out), sys.argv[5:] if sys.argv[4:5] == ["--entrypoint"] else [])
