package ensemble

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// Member describes one server in the configuration of another server. Each server may reach the described server at
// a different address.
type Member struct {
	Host         string
	QuorumPort   int
	ElectionPort int
}

// ZooCfg returns the text of zoo.cfg for one server. With fewer than two members, the server is standalone.
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
	if !testenv.OnDisk() {
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

// JavaFlags limit the memory of a server, enable TTL nodes, and make a server look for the other servers at least
// once a second: by default, a server that was alone for long detects other servers only after up to a minute. The
// serial garbage collector needs the fewest threads, which matters with several servers on two cores.
var JavaFlags = []string{
	"-Xms32m", "-Xmx256m", "-XX:+UseSerialGC",
	"-Dzookeeper.extendedTypesEnabled=true",
	"-Dzookeeper.fastleader.maxNotificationInterval=1000",
	"-Dzookeeper.cnxTimeout=1000",
	"-Djava.net.preferIPv4Stack=true",
}
