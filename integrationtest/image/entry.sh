#!/bin/sh
# Runs a ZooKeeper server in a container of the image of build.sh. It supports the settings of the
# official image that the tests use: /conf/zoo.cfg, /data, ZOO_MY_ID (the number of the server in its
# ensemble), and JVMFLAGS.
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

# slf4j-simple writes the log to standard error. Other jars of the directory would add conflicting
# logging bridges. JVMFLAGS may contain several words.
# shellcheck disable=SC2086
exec java ${JVMFLAGS:-} -Dorg.slf4j.simpleLogger.showDateTime=true \
	-cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
