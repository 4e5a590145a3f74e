// Package difftest sends the same requests to zktest and to a real Apache
// ZooKeeper server, and compares everything that comes back.
package difftest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

var (
	steps = flag.Int("diff.steps", 6000, "requests of a random run")
	seed  = flag.Uint64("diff.seed", 1, "seed of the random run")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is the two servers and, for each client, its two connections.
type pair struct {
	t       *testing.T
	targets [2]*target
	history []string
}

func newPair(t *testing.T, sweep time.Duration) *pair {
	t.Helper()
	return newPairOf(t, realServer(t, sweep, nil), embeddedServer(t, sweep))
}

func embeddedServer(t *testing.T, sweep time.Duration) *zktest.Server {
	return zktest.Start(t, zktest.WithTick(200*time.Millisecond), zktest.WithSweep(sweep),
		zktest.WithSessionTimeouts(400*time.Millisecond, time.Minute))
}

func newPairOf(t *testing.T, e *ensemble.Ensemble, s *zktest.Server) *pair {
	p := &pair{t: t}
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

func (p *pair) log(format string, args ...any) {
	p.history = append(p.history, fmt.Sprintf(format, args...))
	if len(p.history) > 60 {
		p.history = p.history[1:]
	}
}

func (p *pair) fatal(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n\nwhat came before:\n%s", fmt.Sprintf(format, args...), strings.Join(p.history, "\n"))
}

// open connects client k at both servers: for a new session, or its old one again.
func (p *pair) open(k int, again bool, timeout time.Duration) {
	p.t.Helper()
	var out [2]string
	for i, x := range p.targets {
		for len(x.clients) <= k {
			x.clients = append(x.clients, &client{label: fmt.Sprintf("client%d", len(x.clients))})
		}
		c := x.clients[k]
		if c.nc != nil {
			c.nc.Close()
		}
		c.pending = nil
		if !again {
			c.session, c.passwd = 0, nil
		}
		s, err := x.open(c, timeout)
		if err != nil {
			p.fatal("%s: %v", x.name, err)
		}
		out[i] = s
		if x.zxid0 == 0 {
			// Numbers are compared from here: the answer to a ping tells where we are.
			if _, err := c.do(wire.Request{Header: wire.Header{Op: wire.Ping}}); err != nil {
				p.fatal("%s: %v", x.name, err)
			}
			x.zxid0 = c.zxid
		}
	}
	p.log("client%d opens again=%v: %s", k, again, out[0])
	if out[0] != out[1] {
		p.fatal("handshake of client%d\n  real   %s\n  zktest %s", k, out[0], out[1])
	}
}

// step sends reqs from client k to both, then a ping from everybody else so that
// the events they got are there, and compares. Where the order of events depends
// on the server's hash tables, unordered leaves it out of account.
func (p *pair) step(k int, unordered bool, reqs ...wire.Request) []string {
	p.t.Helper()
	for _, r := range reqs {
		p.log("client%d %s", k, describe(r))
	}
	var own []string
	for j := range p.targets[0].clients {
		j = (k + j) % len(p.targets[0].clients) // k first
		ask := []wire.Request{{Header: wire.Header{Op: wire.Ping}}}
		if j == k {
			ask = reqs
		}
		var got [2][]string
		for i, x := range p.targets {
			lines, err := x.clients[j].do(ask...)
			if err != nil {
				p.fatal("%s: %v", x.name, err)
			}
			if unordered {
				slices.Sort(lines)
			}
			got[i] = lines
		}
		if !slices.Equal(got[0], got[1]) {
			p.fatal("client%d was told\n  real   %s\n  zktest %s", j,
				strings.Join(got[0], "\n         "), strings.Join(got[1], "\n         "))
		}
		if j == k {
			own = got[0]
		}
		for _, l := range got[0] {
			p.log("  client%d < %s", j, l)
		}
	}
	return own
}

func describe(r wire.Request) string {
	return fmt.Sprintf("%v %q data=%q acl=%v flags=%d version=%d watch=%v ttl=%d ops=%v zxid=%d %q %q %q %q %q",
		r.Op, r.Path, r.Data, r.ACL, r.Flags, r.Version, r.Watch, r.TTL, r.Ops, r.Zxid,
		r.DataW, r.ExistW, r.ChildW, r.Persistent, r.Recursive)
}

// TestRandom is a long random conversation of four clients.
func TestRandom(t *testing.T) {
	p := newPair(t, time.Hour) // the moment of a sweep cannot be compared
	t.Logf("seed %d, %d requests (-diff.seed, -diff.steps)", *seed, *steps)
	g := &generator{r: rand.New(rand.NewPCG(*seed, 1))}
	const clients = 4
	for k := range clients {
		p.open(k, false, 30*time.Second)
	}
	sent := 0
	for sent < *steps {
		k := g.r.IntN(clients)
		switch x := g.r.IntN(200); {
		case x == 0: // the session ends
			p.step(k, true, wire.Request{Header: wire.Header{Op: wire.CloseSession}})
			p.open(k, false, 30*time.Second)
		case x <= 2: // the connection ends, the session does not
			p.open(k, true, 30*time.Second)
			p.step(k, false, g.setWatches(p.targets[0].clients[k].zxid-p.targets[0].zxid0))
		default:
			batch := make([]wire.Request, 1+g.r.IntN(4))
			for i := range batch {
				batch[i] = g.request(p.targets[0].clients[k].zxid - p.targets[0].zxid0)
			}
			// The real server answers auth out of turn, when it is not done with what came before.
			if i := slices.IndexFunc(batch, func(r wire.Request) bool { return r.Op == wire.Auth }); i >= 0 {
				batch = batch[i : i+1]
			}
			p.step(k, false, batch...)
			sent += len(batch)
		}
	}
	t.Logf("the largest zxid is %s", p.targets[0].rel(p.targets[0].clients[0].zxid))
}
