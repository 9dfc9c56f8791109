#!/usr/bin/env bash
# build_previous.sh COMMIT FOLDER: the images of an earlier commit, with the tag `previous`, and its charts, in FOLDER. The
# environment is that of build_images.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$1
root=$PWD
mkdir -p "$2"
folder=$(realpath "$2")
tree=$root/target/previous

# There is one only if an earlier run was killed.
git worktree remove --force "$tree" 2> /dev/null || true
git worktree add --quiet --force --detach "$tree" "$commit"
trap 'git -C "$root" worktree remove --force "$tree"' EXIT
ln -s "$root/.venv" "$tree/.venv"
cp tools/build_images.sh "$tree/tools/build_images.sh"
CARGO_TARGET_DIR=$root/target "$tree/tools/build_wheels.sh" dist
IMAGE_VERSION=previous "$tree/tools/build_images.sh" "$folder"
rm -rf "$folder/charts"
cp -r "$tree/charts" "$folder/charts"
