#!/bin/sh
# Installs the missing requirements of the tests, on Debian as root: ZooKeeper, Java, etcd, NATS,
# databases, clients of other languages, a C compiler for the race detector and, if a Docker engine
# answers, a ZooKeeper image. It is quick if nothing is missing.
set -eu

# The same names as in integrationtest/docker/image.go.
registry_image=zookeeper:3.9.4
built_image=leaderelection-zookeeper:3.8-1

here=$(cd "$(dirname "$0")" && pwd)

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

# Any version of Java from 11 is sufficient.
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
# Clients of other languages. One is a Java source file, which requires a compiler.
java --list-modules 2>/dev/null | grep -q '^jdk.compiler' || missing="$missing openjdk-17-jdk-headless"
[ -f /usr/share/java/curator-recipes.jar ] || missing="$missing libcurator-recipes-java"
[ -f /usr/share/java/curator-x-discovery.jar ] || missing="$missing libcurator-discovery-java"
command -v tmux >/dev/null || missing="$missing tmux" # a terminal for elector top
# The documentation uses these: systemd checks the example of a unit.
command -v curl >/dev/null || missing="$missing curl"
command -v systemd-analyze >/dev/null || missing="$missing systemd"
[ -d /usr/lib/python3/dist-packages/kazoo ] || missing="$missing python3-kazoo"
command -v etcd >/dev/null || missing="$missing etcd-server"
command -v etcdctl >/dev/null || missing="$missing etcd-client"
command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ] || missing="$missing nats-server"
have_c_compiler || missing="$missing gcc libc6-dev"
# Databases that store elections. The tests start their own servers, and do not use those that Debian
# starts.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v mariadb-install-db >/dev/null || missing="$missing mariadb-server" # with Galera and rsync

build=no
if have_engine && ! have_image && ! pull_image; then
	build=yes
	command -v debootstrap >/dev/null || missing="$missing debootstrap"
fi

if [ -n "$missing" ]; then
	[ "$(id -u)" -eq 0 ] || fail "missing:$missing; run as root: apt-get install -y$missing"
	command -v apt-get >/dev/null || fail "missing:$missing; this system is not Debian; install them by other means"
	echo "install.sh: installing Debian packages for the tests:$missing"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q
	# The words of $missing are packages.
	# shellcheck disable=SC2086
	apt-get install -q -y --no-install-recommends $missing
	# These packages start servers. The tests start their own.
	for package in etcd-server:etcd mariadb-server:mariadb pgbouncer:pgbouncer; do
		case $missing in
		*"${package%:*}"*)
			if [ -d /run/systemd/system ]; then
				systemctl disable -q --now "${package#*:}.service" || true
			fi
			;;
		esac
	done
fi

if [ "$build" = yes ]; then
	[ "$(id -u)" -eq 0 ] || fail "the Docker engine has no ZooKeeper image; run as root: $here/image/build.sh"
	echo "install.sh: building the image $built_image, which takes one or two minutes"
	sh "$here/image/build.sh"
fi
