package integrationtest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// link is the network between one client and its servers: a proxy for each of
// them.
type link []*zkproxy.Proxy

// newLink makes a link to the servers that ends with the test.
func newLink(t testing.TB, addrs []string) link {
	t.Helper()
	var l link
	for _, addr := range addrs {
		p, err := zkproxy.New(addr)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		l = append(l, p)
	}
	return l
}

func (l link) addrs() (all []string) {
	for _, p := range l {
		all = append(all, p.Addr())
	}
	return all
}

// beforeReconnect keeps a data race of the client library v1.0.4 from ending
// the tests of this one: on a new connection it reads its last zxid for the
// renewal of watches (sendSetWatches) while the replies to requests that were
// waiting already write it (recvLoop). Replies that come a little later leave
// it the time. The race itself, and the watches that it can lose, are why the
// library looks again after every reconnect.
func (l link) beforeReconnect() {
	for _, p := range l {
		p.Delay(zkproxy.ServerToClient, 10*time.Millisecond)
	}
}

// cut breaks all connections and refuses new ones.
func (l link) cut() {
	l.beforeReconnect()
	for _, p := range l {
		p.Refuse(true)
		p.DropConnections()
	}
}

// freeze makes a black hole of the link: connections stay open and silent.
func (l link) freeze() {
	l.beforeReconnect()
	for _, p := range l {
		p.Blackhole(zkproxy.Both)
	}
}

// restore ends cut and freeze. What a black hole has held is lost.
func (l link) restore() {
	for _, p := range l {
		p.DropConnections()
		p.Unblackhole()
		p.Refuse(false)
	}
}

// server is the server, counted as in the link, that the client is connected
// to.
func (c *client) server() int { return slices.Index(c.link.addrs(), c.Server()) }
