#!/usr/bin/env bash
# python_image.sh ROOT: makes the root directory of a Python image out of this machine's own interpreter: the interpreter,
# its standard library, pip, the shared libraries they need, and a shell. Seconds, and no network but for pip.
set -euo pipefail
R=$1
rm -rf "$R"
mkdir -p "$R"/{tmp,etc,bin,usr/bin,proc,sys,dev,var/tmp,root,lib64}
chmod 1777 "$R/tmp" "$R/var/tmp"
PY=$(python3 -c 'import sys; print(sys.base_prefix)')
V=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$R$PY/bin" "$R$PY/lib" "$R/usr/local/bin"
cp -a "$PY/bin/python$V" "$R$PY/bin/"
for name in python3 python; do
    ln -sf "python$V" "$R$PY/bin/$name"
    [ "$PY/bin" = /usr/local/bin ] || ln -s "$PY/bin/python3" "$R/usr/local/bin/$name"
done
[ -e "$PY/lib/libpython$V.so.1.0" ] && cp -a "$PY/lib/libpython$V.so"* "$R$PY/lib/"
(cd "$PY/lib" && tar cf - --exclude=test --exclude=idlelib --exclude=tkinter --exclude=lib2to3 --exclude=turtledemo --exclude=pydoc_data --exclude=ensurepip --exclude=site-packages \
    --exclude=dist-packages --exclude=__pycache__ --exclude='config-*' --exclude='_test*' "python$V") | tar xf - -C "$R$PY/lib"
python3 -m compileall -q --invalidation-mode unchecked-hash "$R$PY/lib/python$V" > /dev/null || true
packages=$R$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$packages"
python3 -m pip install -q --no-compile --target "$packages" pip 2> /dev/null
for b in sh ls cat sleep mkdir rm chmod env id hostname head tail date; do
    p=$(type -P "$b") && cp "$(readlink -f "$p")" "$R/bin/$b"
done
ln -s /bin/env "$R/usr/bin/env"
libraries() {
    { find "$R" -type f \( -name '*.so*' -o -perm -u+x \) -print0 | xargs -0 -n8 ldd 2> /dev/null || true; } \
        | awk '/=> \//{print $3} /^\t\/lib/{print $1}'
    ls /lib/*-linux-gnu/lib{nss_dns,nss_files,resolv,rt,pthread,dl,util,m,c}.so.* /lib/*-linux-gnu/libgcc_s.so.1 \
        /lib/*-linux-gnu/libstdc++.so.6 /usr/lib/*-linux-gnu/libstdc++.so.6 2> /dev/null || true
}
libraries | sort -u | while read -r library; do
    case $library in $R*) continue ;; esac
    mkdir -p "$R$(dirname "$library")"
    cp -L "$library" "$R$library"
done
printf 'root:x:0:0:root:/root:/bin/sh\npenstock:x:10001:10001::/tmp:/bin/sh\n' > "$R/etc/passwd"
printf 'root:x:0:\npenstock:x:10001:\n' > "$R/etc/group"
echo 'hosts: files dns' > "$R/etc/nsswitch.conf"
