package ensemble

// The zoo.cfg and the Java settings that both backends share.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv/serverdir"
)

// Member is a server as one particular server sees it: each may know its
// peers under addresses of its own.
type Member struct {
	Host         string
	QuorumPort   int
	ElectionPort int
}

// ZooCfg gives the text of zoo.cfg for one server. With one member it is a
// standalone server.
func ZooCfg(cfg Config, dataDir, clientAddr string, clientPort int, members []Member) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(cfg.Properties)) {
		fmt.Fprintf(&b, "%s=%s\n", key, cfg.Properties[key])
	}
	fmt.Fprintf(&b, "tickTime=%d\n", cfg.TickTime.Milliseconds())
	fmt.Fprintf(&b, "initLimit=%d\nsyncLimit=%d\n", cfg.InitLimit, cfg.SyncLimit)
	fmt.Fprintf(&b, "dataDir=%s\n", dataDir)
	if clientAddr != "" {
		fmt.Fprintf(&b, "clientPortAddress=%s\n", clientAddr)
	}
	fmt.Fprintf(&b, "clientPort=%d\n", clientPort)
	if !serverdir.OnDisk() {
		b.WriteString("forceSync=no\n")
	}
	b.WriteString("admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n")
	if len(members) < 2 {
		return b.String()
	}
	for i, m := range members {
		fmt.Fprintf(&b, "server.%d=%s:%d:%d\n", i+1, m.Host, m.QuorumPort, m.ElectionPort)
	}
	return b.String()
}

// JavaFlags keep a server small, let it have TTL nodes, and make it look for
// its peers every second at least: by default a server that was alone for long
// takes up to a minute to notice that it no longer is. The serial collector
// needs the fewest threads, which counts with several servers on two cores.
var JavaFlags = []string{
	"-Xms32m", "-Xmx256m", "-XX:+UseSerialGC",
	"-Dzookeeper.extendedTypesEnabled=true",
	"-Dzookeeper.fastleader.maxNotificationInterval=1000",
	"-Dzookeeper.cnxTimeout=1000",
	"-Djava.net.preferIPv4Stack=true",
}
