package difftest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// serverPair compares a real server with an embedded server. Each client has a connection to both.
type serverPair struct {
	t       *testing.T
	targets [2]*target
	history []string
}

func newPair(t *testing.T, sweep time.Duration) *serverPair {
	t.Helper()
	return newPairWith(t, startRealServer(t, sweep, nil), startEmbeddedServer(t, sweep))
}

func newPairWith(t *testing.T, e *ensemble.Ensemble, s *zktest.Server) *serverPair {
	p := &serverPair{t: t}
	for i, addr := range []string{e.Addr(0), s.Addr()} {
		p.targets[i] = &target{name: [...]string{"real", "zktest"}[i], addr: addr, sessions: make(map[int64]string)}
	}
	t.Cleanup(func() {
		for _, x := range p.targets {
			for _, c := range x.clients {
				if c.nc != nil {
					c.nc.Close()
				}
			}
		}
	})
	return p
}

func (p *serverPair) addHistory(format string, args ...any) {
	p.history = append(p.history, fmt.Sprintf(format, args...))
	if len(p.history) > 60 {
		p.history = p.history[1:]
	}
}

func (p *serverPair) failf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n\nprevious requests:\n%s", fmt.Sprintf(format, args...), strings.Join(p.history, "\n"))
}

// connectClient connects client k to both servers, with its previous session if resume is true.
func (p *serverPair) connectClient(k int, resume bool, timeout time.Duration) {
	p.t.Helper()
	var replies [2]string
	for i, x := range p.targets {
		for len(x.clients) <= k {
			x.clients = append(x.clients, &client{label: fmt.Sprintf("client%d", len(x.clients))})
		}
		c := x.clients[k]
		if c.nc != nil {
			c.nc.Close()
		}
		c.pending = nil
		if !resume {
			c.session, c.passwd = 0, nil
		}
		s, err := x.connect(c, timeout)
		if err != nil {
			p.failf("connect to %s: %v", x.name, err)
		}
		replies[i] = s
		if x.zxid0 == 0 {
			// Send a ping, because its reply contains the current zxid.
			if _, err := c.exchange(wire.Request{Header: wire.Header{Op: wire.Ping}}); err != nil {
				p.failf("ping %s: %v", x.name, err)
			}
			x.zxid0 = c.zxid
		}
	}
	p.addHistory("client%d connects, resume=%v: %s", k, resume, replies[0])
	if replies[0] != replies[1] {
		p.failf("handshake of client%d\n  real   %s\n  zktest %s", k, replies[0], replies[1])
	}
}

// compare sends reqs from client k to both servers, and then a ping from each other client, so that their
// events have arrived. The packets must be equal. If the order of events depends on the hash tables of the
// server, unordered must be true. It returns the packets of client k.
func (p *serverPair) compare(k int, unordered bool, reqs ...wire.Request) []string {
	p.t.Helper()
	for _, r := range reqs {
		p.addHistory("client%d %s", k, describeRequest(r))
	}
	var ownLines []string
	for j := range p.targets[0].clients {
		j = (k + j) % len(p.targets[0].clients) // start with client k
		batch := []wire.Request{{Header: wire.Header{Op: wire.Ping}}}
		if j == k {
			batch = reqs
		}
		var got [2][]string
		for i, x := range p.targets {
			lines, err := x.clients[j].exchange(batch...)
			if err != nil {
				p.failf("exchange with %s: %v", x.name, err)
			}
			if unordered {
				slices.Sort(lines)
			}
			got[i] = lines
		}
		if !slices.Equal(got[0], got[1]) {
			p.failf("client%d received\n  real   %s\n  zktest %s", j,
				strings.Join(got[0], "\n         "), strings.Join(got[1], "\n         "))
		}
		if j == k {
			ownLines = got[0]
		}
		for _, l := range got[0] {
			p.addHistory("  client%d < %s", j, l)
		}
	}
	return ownLines
}

func describeRequest(r wire.Request) string {
	return fmt.Sprintf("%v %q data=%q acl=%v flags=%d version=%d watch=%v ttl=%d ops=%v zxid=%d %q %q %q %q %q",
		r.Op, r.Path, r.Data, r.ACL, r.Flags, r.Version, r.Watch, r.TTL, r.Ops, r.Zxid,
		r.DataW, r.ExistW, r.ChildW, r.Persistent, r.Recursive)
}
