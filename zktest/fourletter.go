package zktest

import (
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// version is the version that the server reports, which is the release that it imitates.
const version = "3.8.0-zktest, built on 2022-02-25 08:49 UTC"

// serveFourLetter answers a four-letter word, a command that operators send instead of a handshake.
func (c *conn) serveFourLetter(word string) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.send([]byte(fourLetterWords[word](c)))
	c.closeWhenSent()
}

var fourLetterWords = map[string]func(*conn) string{
	"ruok": func(*conn) string { return "imok" },
	"isro": func(c *conn) string {
		if !c.e.quorum {
			return "null"
		}
		return "rw"
	},
	"srvr": func(c *conn) string { return c.describeServer(false) },
	"stat": func(c *conn) string { return c.describeServer(true) },
	"mntr": (*conn).describeMetrics,
	"cons": func(c *conn) string { return c.describeClients(true) + "\n" },
	"conf": (*conn).describeConfig,
	"dump": (*conn).describeSessions,
	"envi": func(*conn) string { return describeEnvironment() },
	"wchs": func(c *conn) string {
		conns, total := 0, 0
		for k := range c.srv.conns {
			if n := len(k.dataWatches); n > 0 {
				conns, total = conns+1, total+n
			}
		}
		return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", conns, len(c.e.dataWatches.byPath), total)
	},
	"wchc": func(c *conn) string {
		var b strings.Builder
		for _, k := range c.srv.connections() {
			if len(k.dataWatches) == 0 {
				continue
			}
			fmt.Fprintf(&b, "0x%x\n", k.sessionID())
			for _, p := range slices.Sorted(maps.Keys(k.dataWatches)) {
				fmt.Fprintf(&b, "\t%s\n", p)
			}
		}
		return b.String() + "\n"
	},
	"wchp": func(c *conn) string {
		var b strings.Builder
		for _, p := range slices.Sorted(maps.Keys(c.e.dataWatches.byPath)) {
			fmt.Fprintf(&b, "%s\n", p)
			for _, k := range c.e.dataWatches.byPath[p] {
				fmt.Fprintf(&b, "\t0x%x\n", k.sessionID())
			}
		}
		return b.String() + "\n"
	},
	"crst": func(c *conn) string {
		for k := range c.srv.conns {
			k.received, k.sent = 0, 0
		}
		return "Connection stats reset.\n"
	},
	"srst": func(*conn) string { return "Server stats reset.\n" },
	"dirs": func(*conn) string { return "datadir_size: 0\nlogdir_size: 0\n" },
	"gtmk": func(*conn) string { return "306" },
	"stmk": func(*conn) string { return "306" },
	"hash": func(*conn) string { return "" },
}

func (c *conn) countPackets() (received, sent int64) {
	for k := range c.srv.conns {
		received, sent = received+k.received, sent+k.sent
	}
	return received, sent
}

func (s *Server) serverMode() string {
	switch {
	case len(s.e.servers) == 1:
		return "standalone"
	case s.e.leader == s.id && s.view == nil:
		return "leader"
	}
	return "follower"
}

func (c *conn) describeServer(clients bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Zookeeper version: %s\n", version)
	if clients {
		fmt.Fprintf(&b, "Clients:\n%s\n", c.describeClients(false))
	}
	received, sent := c.countPackets()
	t := c.e.treeOf(c)
	fmt.Fprintf(&b, "Latency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: 0\nZxid: 0x%x\nMode: %s\nNode count: %d\n",
		received, sent, len(c.srv.conns), t.zxid, c.srv.serverMode(), t.countNodes())
	return b.String()
}

func (c *conn) describeClients(long bool) string {
	var b strings.Builder
	for _, k := range c.srv.connections() {
		established := 0
		if k.sess != nil {
			established = 1
		}
		fmt.Fprintf(&b, " /%s[%d](queued=0,recved=%d,sent=%d", k.nc.RemoteAddr(), established, k.received, k.sent)
		if long && k.sess != nil {
			fmt.Fprintf(&b, ",sid=0x%x,lop=%s,est=%d,to=%d,lcxid=0x%x,lzxid=0x%x,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0",
				k.sess.id, shortOpName(k.last.Op), k.since.UnixMilli(), k.sess.timeout.Milliseconds(), uint32(k.last.Xid), uint64(k.last.Zxid))
		}
		b.WriteString(")\n")
	}
	return b.String()
}

// shortOpName returns the name of an operation in the answer to cons.
func shortOpName(op Op) string {
	switch op {
	case OpAny:
		return "NA"
	case OpGetChildren, OpGetChildren2:
		return "GETC"
	}
	name := strings.ToUpper(op.String())
	return name[:min(4, len(name))]
}

func (c *conn) describeMetrics() string {
	e := c.e
	t := e.treeOf(c)
	received, sent := c.countPackets()
	watches, size, owned := 0, 0, 0
	for k := range c.srv.conns {
		watches += len(k.dataWatches) + len(k.childWatches)
	}
	for p, n := range t.nodes {
		size += len(p) + len(n.data)
	}
	for _, nodes := range t.owned {
		owned += len(nodes)
	}
	return fmt.Sprintf("zk_version\t%s\nzk_server_state\t%s\nzk_ephemerals_count\t%d\nzk_num_alive_connections\t%d\n"+
		"zk_avg_latency\t0.0\nzk_outstanding_requests\t0\nzk_znode_count\t%d\nzk_global_sessions\t%d\n"+
		"zk_packets_sent\t%d\nzk_packets_received\t%d\nzk_watch_count\t%d\nzk_min_latency\t0\nzk_max_latency\t0\n"+
		"zk_approximate_data_size\t%d\nzk_uptime\t%d\n",
		version, c.srv.serverMode(), owned, len(c.srv.conns), t.countNodes(), len(e.sessions),
		sent, received, watches, size, e.nowLocked().Sub(e.started).Milliseconds())
}

// describeConfig returns the settings in the order of a real server. It omits the directories of a
// real server, and clientPort is -1 if the server has no TCP listener.
func (c *conn) describeConfig() string {
	cfg, port := c.e.cfg, "-1"
	if c.srv.bound != "" {
		_, port, _ = net.SplitHostPort(c.srv.bound)
	}
	id := 0
	if len(c.e.servers) > 1 {
		id = c.srv.id + 1
	}
	out := fmt.Sprintf("clientPort=%s\nsecureClientPort=-1\ndataDir=\ndataDirSize=0\ndataLogDir=\ndataLogSize=0\ntickTime=%d\n"+
		"maxClientCnxns=0\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=%d\n",
		port, cfg.tick.Milliseconds(), cfg.minTimeout.Milliseconds(), cfg.maxTimeout.Milliseconds(), id)
	if id > 0 {
		out += fmt.Sprintf("initLimit=10\nsyncLimit=%d\nelectionAlg=3\nelectionPort=%d\nquorumPort=%d\npeerType=0\nmembership: \n%s",
			cfg.syncLimit/cfg.tick, 3888+c.srv.portOffset(), 2888+c.srv.portOffset(), c.e.configData())
	}
	return out
}

// describeEnvironment returns the properties that a real server reports about Java, with their
// equivalents in Go.
func describeEnvironment() string {
	directory, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return "Environment:\nzookeeper.version=" + version + "\nhost.name=localhost\njava.version=" + runtime.Version() +
		"\njava.vendor=zktest\njava.home=\njava.class.path=\njava.library.path=\njava.io.tmpdir=" + os.TempDir() +
		"\njava.compiler=<NA>\nos.name=" + runtime.GOOS + "\nos.arch=" + runtime.GOARCH + "\nos.version=\nuser.name=" + os.Getenv("USER") +
		"\nuser.home=" + home + "\nuser.dir=" + directory +
		fmt.Sprintf("\nos.memory.free=%dMB\nos.memory.max=%[2]dMB\nos.memory.total=%[2]dMB\n", memory.HeapIdle>>20, memory.Sys>>20)
}

func (c *conn) describeSessions() string {
	e := c.e
	var b strings.Builder
	ids := slices.Sorted(maps.Keys(e.sessions))
	fmt.Fprintf(&b, "SessionTracker dump:\nSession Sets (%d)/(%d):\n", len(ids), len(ids))
	for _, id := range ids {
		e.applyReport(e.sessions[id])
		fmt.Fprintf(&b, "1 expire at %s:\n\t0x%x\n", e.sessions[id].deadline.UTC().Format(time.UnixDate), id)
	}
	t := e.treeOf(c)
	owners := slices.Sorted(maps.Keys(t.owned))
	fmt.Fprintf(&b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(owners))
	for _, id := range owners {
		fmt.Fprintf(&b, "0x%x:\n", id)
		for _, n := range t.ephemerals(id) {
			fmt.Fprintf(&b, "\t%s\n", n.path)
		}
	}
	b.WriteString("Connections dump:\n")
	for _, k := range c.srv.connections() {
		fmt.Fprintf(&b, "\tip: /%s sessionId: 0x%x\n", k.nc.RemoteAddr(), k.sessionID())
	}
	return b.String()
}
