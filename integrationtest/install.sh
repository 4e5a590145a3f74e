#!/bin/sh
# Installs what the tests need and this machine lacks, on Debian as root:
# ZooKeeper, Java, etcd, NATS, other languages' clients, a C compiler for the race detector
# and, where a Docker engine answers, a ZooKeeper image. Quick when there is
# nothing to do.
set -eu

# The same names as in internal/testenv/ensemble.
registry_image=zookeeper:3.9.4
built_image=leaderelection-zookeeper:3.8-1

here=$(cd "$(dirname "$0")" && pwd)

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

# Any Java from 11 on will do.
have_java() {
	command -v java >/dev/null || return 1
	major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
	[ "${major:-0}" -ge 11 ]
}

have_c_compiler() {
	command -v cc >/dev/null && echo 'int main(void){return 0;}' | cc -xc -include stdlib.h -o /dev/null - 2>/dev/null
}

have_engine() {
	command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1
}

have_image() {
	docker image inspect "$registry_image" >/dev/null 2>&1 ||
		docker image inspect "$built_image" >/dev/null 2>&1
}

pull_image() {
	timeout 120 docker pull -q "$registry_image" >/dev/null 2>&1
}

missing=
[ -f /usr/share/java/zookeeper.jar ] || missing="$missing zookeeper"
have_java || missing="$missing openjdk-17-jre-headless"
# Clients of other languages. One is a Java source file, so a compiler is needed.
java --list-modules 2>/dev/null | grep -q '^jdk.compiler' || missing="$missing openjdk-17-jdk-headless"
[ -f /usr/share/java/curator-recipes.jar ] || missing="$missing libcurator-recipes-java"
[ -f /usr/share/java/curator-x-discovery.jar ] || missing="$missing libcurator-discovery-java"
command -v tmux >/dev/null || missing="$missing tmux" # a terminal for elector top
[ -d /usr/lib/python3/dist-packages/kazoo ] || missing="$missing python3-kazoo"
command -v etcd >/dev/null || missing="$missing etcd-server"
command -v etcdctl >/dev/null || missing="$missing etcd-client"
command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ] || missing="$missing nats-server"
have_c_compiler || missing="$missing gcc libc6-dev"
# Databases that keep elections. What Debian starts of them is not used: the tests
# start their own.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v redis-server >/dev/null || missing="$missing redis-server"

build=no
if have_engine && ! have_image && ! pull_image; then
	build=yes
	command -v debootstrap >/dev/null || missing="$missing debootstrap"
fi

if [ -n "$missing" ]; then
	[ "$(id -u)" -eq 0 ] || fail "missing:$missing; run as root: apt-get install -y$missing"
	command -v apt-get >/dev/null || fail "missing:$missing; this is no Debian, please install them by other means"
	echo "install.sh: the tests need Debian packages that this machine lacks; installing:$missing"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q
	# The words of $missing are packages.
	# shellcheck disable=SC2086
	apt-get install -q -y --no-install-recommends $missing
	case $missing in
	*etcd-server*)
		# The package starts a server of its own; the tests start theirs.
		if [ -d /run/systemd/system ]; then
			systemctl disable -q --now etcd.service || true
		fi
		;;
	esac
fi

if [ "$build" = yes ]; then
	[ "$(id -u)" -eq 0 ] || fail "the Docker engine has no ZooKeeper image; run as root: $here/image/build.sh"
	echo "install.sh: building the image $built_image, which takes a minute or two"
	sh "$here/image/build.sh"
fi
