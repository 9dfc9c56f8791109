#!/usr/bin/env bash
# build_images.sh FOLDER: the images penstock and penstock-operator as OCI archives in FOLDER, out of the wheels in dist/.
# Where docker or podman is, they build on PYTHON_IMAGE as it is in the Dockerfile; where only buildah is, as on machines
# without a registry, on an archive of a base image: BASE_ARCHIVE. IMAGE_VERSION is the tag, else it is the version.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
version=${IMAGE_VERSION:-$(sed -n '0,/^version = "\(.*\)"/s//\1/p' Cargo.toml)}
mkdir -p "$folder"

build_target() {
    buildah --root "$folder/.storage" --storage-driver overlay bud --quiet --isolation chroot --target "$1" --build-arg WHEELS=dist \
        --build-arg "PYTHON_IMAGE=$base" --tag "docker.io/library/$2:$version" . > /dev/null
}

build_with_buildah() {
    local target=$1 name=$2
    # Storing a layer fails now and then ("read/write on closed pipe"), and always when the disk is full: the second try
    # tells the one from the other.
    build_target "$target" "$name" || {
        echo "images: building $name failed; trying once more. Free space:" >&2
        df -h "$folder" >&2
        build_target "$target" "$name"
    }
    rm -f "$folder/$name.tar"
    buildah --root "$folder/.storage" --storage-driver overlay push --quiet "docker.io/library/$name:$version" \
        "oci-archive:$folder/$name.tar:docker.io/library/$name:$version"
}

build_with() {
    local engine=$1 target=$2 name=$3
    "$engine" build --target "$target" --build-arg WHEELS=dist --tag "$name:$version" .
    "$engine" save --output "$folder/$name.tar" "$name:$version"
}

if [ -n "${BASE_ARCHIVE:-}" ]; then
    base=$(buildah --root "$folder/.storage" --storage-driver overlay pull --quiet "oci-archive:$BASE_ARCHIVE")
    build_with_buildah broker penstock
    build_with_buildah operator penstock-operator
else
    engine=$(command -v docker || command -v podman) \
        || { echo "images: docker or podman is needed, or buildah with BASE_ARCHIVE" >&2; exit 1; }
    build_with "$engine" broker penstock
    build_with "$engine" operator penstock-operator
fi
for name in penstock penstock-operator; do
    printf 'image %-20s %6.1f MB compressed\n' "$name:$version" \
        "$(gzip --fast --stdout "$folder/$name.tar" | wc -c | awk '{print $1 / 1e6}')"
done
