#!/usr/bin/env bash
# tools/release.sh: a program is built against the unpacked tarball and against the unpacked Debian packages, and runs
# on the CPU; what is needed of the system is within the bounds; a second release has the same bytes.
set -euo pipefail
# shellcheck source=tests/install/client.sh
source tests/install/client.sh
needs dpkg-deb
needs pkg-config
export SOURCE_DATE_EPOCH=1700000000
architecture=$(dpkg --print-architecture)

tools/release.sh "$out/first" --built .
(umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 tools/release.sh "$out/second" --built .)
cmp "$out/first/SHA256SUMS" "$out/second/SHA256SUMS" || fail "two releases differ"
(cd "$out/first" && sha256sum --quiet --check SHA256SUMS) || fail "SHA256SUMS are not those of the files"
expect "$(wc -l <"$out/first/SHA256SUMS")" 4

tar -xzf "$out/first/kiln-$version-linux-$(uname -m).tar.gz" -C "$out"
tree=$out/kiln-$version-linux-$(uname -m)
gcc "$program" -I"$tree/include" -L"$tree/lib" -lcudnn -o "$out/of_tarball"
run_client "$out/of_tarball" "$tree/lib"

packages=(libkiln libkiln-dev kiln-cpu)
for package in "${packages[@]}"; do
  deb=$out/first/${package}_${version}_$architecture.deb
  expect "$(dpkg-deb --field "$deb" Version)" "$version"
  if dpkg-deb --field "$deb" | grep -E '@[A-Z]+@|^Depends: *,|: *$'; then fail "a field of $package is not filled in"; fi
  dpkg-deb --fsys-tarfile "$deb" | tar -t | grep -v '/$' >"$out/$package.files"
  if dpkg-deb --fsys-tarfile "$deb" | tar -tv --numeric-owner | grep -v ' 0/0 '; then fail "files of $package are not root's"; fi
  dpkg-deb -x "$deb" "$out/root"
  dpkg-deb -e "$deb" "$out/control"
  (cd "$out/root" && md5sum --quiet --check "$out/control/md5sums") || fail "the checksums of $package are not those of its files"
  rm -r "$out/control"
done
expect "$(sort "$out"/*.files | uniq -d)" ""
expect "$(sed -n 's|^\./usr/||p' "$out"/*.files | grep -v '^share/doc/' | LC_ALL=C sort)" \
  "$(grep -v '^share/doc/' "$tree/share/kiln/installed.txt")"
expect "$(dpkg-deb --field "$out/first/kiln-cpu_${version}_$architecture.deb" Depends | tr , '\n' | grep -c LLVM -i)" 1
for package in libkiln libkiln-dev; do
  if dpkg-deb --field "$out/first/${package}_${version}_$architecture.deb" Depends | grep -i llvm; then
    fail "$package needs LLVM"
  fi
done

# As the packages lie below /usr: without kiln-cpu there is no device here, with it the CPU.
root=$out/root/usr
gcc "$program" -I"$root/include" -L"$root/lib" -lcudnn -o "$out/of_packages"
run_client "$out/of_packages" "$root/lib"
expect "$("$root/bin/kiln" --version | sed 's/, build.*//')" "kiln $version"
PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config --exists kiln || fail "pkg-config does not find the unpacked packages"
mv "$root/lib/libkiln_cpu.so" "$out"
if LD_LIBRARY_PATH=$root/lib KILN_DEVICE=cpu "$out/of_packages" >"$out/log" 2>&1; then fail "there is a CPU without its plug-in"; fi
grep -q libkiln_cpu.so "$out/log" || { cat "$out/log"; fail "it does not say what is missing"; }
