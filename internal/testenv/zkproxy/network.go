package zkproxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Network is the network between one client and its servers: a proxy for each server.
type Network []*Proxy

// NewNetwork starts a proxy for each server. The proxies run until the test ends.
func NewNetwork(t testing.TB, servers ...string) Network {
	t.Helper()
	var n Network
	for _, addr := range servers {
		p, err := New(addr)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		n = append(n, p)
	}
	return n
}

// Addrs returns the addresses of the proxies, to which the client connects.
func (n Network) Addrs() (addrs []string) {
	for _, p := range n {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// DelayReplies avoids a data race of the client library v1.0.4. On a new connection, the library reads its last
// zxid to set its watches again (sendSetWatches), while a reply to a waiting request makes another goroutine write
// the same variable (recvLoop). If replies arrive a little later, the read comes first. The race can lose watches,
// so elections read again after each reconnect.
func (n Network) DelayReplies() {
	for _, p := range n {
		p.Delay(ServerToClient, 10*time.Millisecond)
	}
}

// Cut closes all connections and refuses new ones.
func (n Network) Cut() {
	n.DelayReplies()
	for _, p := range n {
		p.Refuse(true)
		p.DropConnections()
	}
}

// Freeze stops all messages without closing connections.
func (n Network) Freeze() {
	n.DelayReplies()
	for _, p := range n {
		p.Blackhole(Both)
	}
}

// Restore ends Cut, Freeze and Refuse. It closes the connections, so that the messages which Freeze has stopped are
// lost.
func (n Network) Restore() {
	for _, p := range n {
		p.DropConnections()
		p.Unblackhole()
		p.Refuse(false)
	}
}

// Thaw ends Freeze, and delivers the messages that Freeze has stopped.
func (n Network) Thaw() {
	for _, p := range n {
		p.Unblackhole()
	}
}

// Drop closes all connections. The client can reconnect.
func (n Network) Drop() {
	for _, p := range n {
		p.DropConnections()
	}
}

// Refuse refuses new connections until Restore is called. Existing connections remain open.
func (n Network) Refuse() {
	for _, p := range n {
		p.Refuse(true)
	}
}

// ExpireSession expires a session of the client.
func (n Network) ExpireSession(session int64) (err error) {
	for _, p := range n { // only the proxies that the client has used know the session
		if err = p.ExpireSession(session); err == nil {
			return nil
		}
	}
	return err
}
