#!/bin/sh
# First program of a container made by build.sh: one ZooKeeper server in the
# foreground. It keeps to the part of the official image's contract that the
# tests use, so that one set of settings fits both images: /conf/zoo.cfg,
# /data, ZOO_MY_ID (number of this server in its ensemble), JVMFLAGS.
set -eu

mkdir -p /conf /data
[ -f /data/myid ] || echo "${ZOO_MY_ID:-1}" >/data/myid

if [ ! -f /conf/zoo.cfg ]; then
	cat >/conf/zoo.cfg <<-CFG
		tickTime=2000
		dataDir=/data
		clientPort=2181
		admin.enableServer=false
		4lw.commands.whitelist=*
	CFG
fi

# slf4j-simple writes the log to standard error; with more of the folder's
# jars the logging bridges clash. JVMFLAGS holds several words on purpose.
# shellcheck disable=SC2086
exec java ${JVMFLAGS:-} -Dorg.slf4j.simpleLogger.showDateTime=true \
	-cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
