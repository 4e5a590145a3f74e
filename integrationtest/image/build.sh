#!/bin/sh
# Builds a ZooKeeper image from Debian packages, for a Docker engine that cannot pull one. It takes
# one or two minutes, and requires root, debootstrap, and a mirror of Debian. It does nothing if the
# image exists.
set -eu

# The same name as builtImage in integrationtest/docker/image.go. Increase the number after the dash
# when the content changes.
tag=leaderelection-zookeeper:3.8-1
suite=bookworm

have_image() { docker image inspect "$tag" >/dev/null 2>&1; }

have_image && exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "build.sh: must be root to run debootstrap" >&2
	exit 1
fi
if ! command -v debootstrap >/dev/null; then
	echo "build.sh: debootstrap is missing: apt-get install -y debootstrap" >&2
	exit 1
fi

# If several test programs start at the same time, one builds the image and the others wait.
lock=${TMPDIR:-/tmp}/leaderelection-zookeeper-image.lock
exec 9>"$lock"
flock 9
have_image && exit 0

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/leaderelection-zookeeper-image.XXXXXX")
# An interrupted debootstrap may leave mounts.
clean() {
	umount "$work/rootfs/proc" "$work/rootfs/sys" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP

# The mirror that this machine uses. debootstrap has a default.
mirror=$(apt-get indextargets --format '$(REPO_URI)' \
	'Created-By: Packages' 'Origin: Debian' 'Component: main' 2>/dev/null |
	grep -v -e security -e updates | head -n 1 || true)

# $mirror has at most one word.
# shellcheck disable=SC2086
debootstrap --variant=minbase \
	--include=openjdk-17-jre-headless,zookeeper,iproute2,procps \
	"$suite" "$work/rootfs" $mirror >"$work/log" 2>&1 || {
	tail -n 20 "$work/log" >&2
	echo "build.sh: debootstrap failed" >&2
	exit 1
}

root=$work/rootfs
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* \
	"$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
mkdir -p "$root/conf" "$root/data"
install -m 0755 "$here/entry.sh" "$root/entry.sh"
tar -C "$root" -c . | docker import \
	--change 'EXPOSE 2181' --change 'VOLUME ["/data"]' --change 'CMD ["/entry.sh"]' \
	- "$tag" >/dev/null 9>&-
