package zktest

import (
	"fmt"
	"net"
	"strings"
)

// configData returns the content of /zookeeper/config. Curator connects to the addresses in it. So
// configData lists a server with a listener by its address, and any other server by its name for
// in-memory connections. The caller holds e.mu.
func (e *ensemble) configData() []byte {
	var b strings.Builder
	for _, s := range e.servers {
		host, client := fmt.Sprintf("zk%d", s.id+1), "0.0.0.0:2181"
		if s.bound != "" {
			client = s.bound
			host, _, _ = net.SplitHostPort(client)
			if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
				host = "127.0.0.1"
			}
		}
		fmt.Fprintf(&b, "server.%d=%s:participant;%s\n", s.id+1, net.JoinHostPort(host, fmt.Sprintf("%d:%d", 2888+s.portOffset(), 3888+s.portOffset())), client)
	}
	b.WriteString("version=0")
	return []byte(b.String())
}

// portOffset makes the quorum and election ports different for servers with the same host. No
// program listens on these ports.
func (s *Server) portOffset() int {
	if s.bound == "" {
		return 0
	}
	return s.id
}

// setBoundAddr stores the TCP address of the server, and lists the address in /zookeeper/config as
// if the ensemble had been started with this address. The caller holds e.mu.
func (s *Server) setBoundAddr(addr string) {
	e := s.e
	s.bound = addr
	if len(e.servers) == 1 {
		return
	}
	data := e.configData()
	e.tree.nodes[pathConfig].data = data
	for _, v := range e.views {
		v.tree.nodes[pathConfig].data = data
	}
}
