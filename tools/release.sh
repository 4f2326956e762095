#!/usr/bin/env bash
# Makes what is published of this tree: a tarball, Debian packages, and SHA256SUMS over all files of the folder.
#   tools/release.sh [FOLDER] [--built FOLDER]      default dist/release; older files of the same names are replaced
#
#   kiln-VERSION-linux-ARCH.tar.gz      the tree of tools/install.sh, to be unpacked anywhere
#   libkiln_VERSION_ARCH.deb            libraries, tool and records, below /usr
#   libkiln-dev_VERSION_ARCH.deb        headers of cuDNN 9, links, files for CMake and pkg-config
#   kiln-cpu_VERSION_ARCH.deb           the CPU plug-in
#
# --built takes what Bazel has built from that folder. The same binaries give the same bytes: names are sorted, owners
# are root, and times are SOURCE_DATE_EPOCH, the commit's time where that is not set. It fails if a file needs a newer
# glibc or libstdc++ than tools/needed_versions.tsv says.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=dist/release built=()
while [ $# -gt 0 ]; do
  case $1 in
    --built)
      built=(--built "$(cd "$caller" && cd "$2" && pwd)")
      shift
      ;;
    -*)
      sed -n 's/^#   \(tools.*\)  default.*/usage: \1/p' tools/release.sh >&2
      exit 2
      ;;
    /*) out=$1 ;;
    *) out=$caller/$1 ;;
  esac
  shift
done
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

version=$(<VERSION)
machine=$(uname -m)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=kiln-$version-linux-$machine
tree=$work/$name

tools/install.sh "$tree" "${built[@]}"
find "$tree" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec strip --strip-unneeded {} +
tools/needed_versions.py "$tree"

mkdir -p "$out"
find "$work" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
  --directory "$work" "$name" | gzip -6 --no-name >"$out/$name.tar.gz"

# The package that a file of the tree belongs to; the list of what was installed is dpkg's own affair.
package_of() {
  case $1 in
    share/kiln/installed.txt | share/doc/*) ;;
    lib/libkiln_cpu.so) echo kiln-cpu ;;
    include/* | lib/cmake/* | lib/pkgconfig/* | lib/*.so) echo libkiln-dev ;;
    *) echo libkiln ;;
  esac
}

while IFS= read -r file; do
  package=$(package_of "$file")
  [ -n "$package" ] || continue
  mkdir -p "$work/$package/usr/$(dirname "$file")"
  cp --no-dereference "$tree/$file" "$work/$package/usr/$file"
done <"$tree/share/kiln/installed.txt"

# make_package NAME: control file, checksums, licence, and ldconfig behind those that bring libraries.
make_package() {
  local root=$work/$1 documents=$work/$1/usr/share/doc/$1 elf depends=
  mkdir -p "$root/DEBIAN" "$documents"
  cp LICENSE "$documents/copyright"
  gzip -9 --no-name <CHANGELOG.md >"$documents/changelog.gz"
  mapfile -t elf < <(cd "$root/usr" && find . -type f \( -path './bin/*' -o -name '*.so*' \) | sed 's|^\./||' | sort)
  if [ ${#elf[@]} -gt 0 ]; then
    depends=$(tools/needed_versions.py "$tree" --depends "${elf[@]}")
    echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
  fi
  sed -e "s/@VERSION@/$version/g" -e "s/@ARCHITECTURE@/$architecture/g" -e "s/@DEPENDS@/$depends/g" \
    -e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/g" "tools/release/$1.control" >"$root/DEBIAN/control"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zgzip -z6 --build "$root" "$out/${1}_${version}_$architecture.deb" >/dev/null
}
for package in libkiln libkiln-dev kiln-cpu; do make_package "$package"; done

cd "$out"
find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%f\n' | sort | xargs sha256sum >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
cat SHA256SUMS
