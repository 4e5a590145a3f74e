// Package operations tests elections while the operators of their servers work: they restart, restore
// and empty the servers, and so on. At each moment there is at most one leader, afterwards there is a
// leader again, and the log names the reason if there was none.
package operations

import (
	"flag"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

var complete = flag.Bool("operations.complete", false, "run all operations, and not only those that are marked as short")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// timeout is the session timeout or TTL of the candidates.
	timeout = 4 * time.Second
	node    = "/operations"
)

// operation is one row of the table of a backend, whose servers are of type S.
type operation[S any] struct {
	name  string
	short bool // short means that the operation is also tested without -operations.complete.
	// run is what the operators do. The test waits for a leader when it has returned.
	run func(e *election, servers S)
	// reason is a part of a message in the log. It is empty if no leadership needs to end.
	reason string
}

// election is an election with several candidates.
type election struct {
	*testing.T
	log      testenv.Buffer
	networks networks
	stop     []func()

	mu       sync.Mutex
	leaders  []*leaderelection.Leadership // leaders are all leaderships, in the order in which they were delivered.
	overlaps []string
	running  sync.WaitGroup
}

// testOperations executes operations, each with its own servers. start starts servers until the test
// ends, and two candidates, which rejoin.
func testOperations[S any](t *testing.T, operations []operation[S], start func(e *election) S) {
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			if !o.short && !*complete {
				t.Skip("run only with -operations.complete")
			}
			t.Parallel()
			e := &election{T: t}
			servers := start(e)
			defer e.close()
			defer func() {
				if t.Failed() {
					t.Logf("the log of the candidates:\n%s", e.log.String())
				}
			}()
			e.waitForLeader(time.Now())
			o.run(e, servers)
			end := time.Now()
			e.waitForLeader(end)
			t.Logf("a leader %v after the operation", time.Since(end).Round(10*time.Millisecond))
			e.waitForLog(o.reason)
			e.close()
			require.Empty(t, e.overlaps, "two leaders at the same time")
		})
	}
}

func (e *election) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&e.log, nil)) }

// add starts a candidate, which close stops.
func (e *election) add(c leaderelection.Candidate) {
	e.running.Go(func() {
		for s := range c.Status() {
			if s.Leadership != nil {
				e.addLeadership(s.Leadership)
			}
		}
	})
	e.running.Go(func() {
		if err := c.ElectLeader(); err != nil {
			e.logger().Error("the candidacy has ended", "err", err)
		}
	})
	e.stop = append(e.stop, func() { _ = c.Resign() })
}

// stopOldest stops the candidate that was added first.
func (e *election) stopOldest() {
	e.stop[0]()
	e.stop = e.stop[1:]
}

func (e *election) addLeadership(l *leaderelection.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.leaders {
		if other != l && other.Err() == nil && l.Err() == nil {
			e.overlaps = append(e.overlaps, time.Now().String())
		}
	}
	e.leaders = append(e.leaders, l)
}

// leads reports whether there is a leader whose lease was confirmed after a time. On etcd a lease lasts
// for three quarters of the timeout after the confirmed request was sent, on ZooKeeper for longer.
func (e *election) leads(after time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.leaders {
		if l.Err() == nil && l.Deadline().Sub(after) > timeout*3/4 {
			return true
		}
	}
	return false
}

// waitForLeader waits for a leader whose lease was confirmed after a time.
func (e *election) waitForLeader(after time.Time) {
	e.Helper()
	harness.Eventually(e.T, func() bool { return e.leads(after) }, "no leader")
}

// waitForNoLeader waits until there is no leader.
func (e *election) waitForNoLeader() {
	e.Helper()
	harness.Eventually(e.T, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, l := range e.leaders {
			if l.Err() == nil {
				return false
			}
		}
		return true
	}, "there is a leader")
}

// waitForLog waits until the log contains text.
func (e *election) waitForLog(text string) {
	e.Helper()
	harness.Eventually(e.T, func() bool { return strings.Contains(e.log.String(), text) }, "the log does not contain: "+text)
}

// addNetwork adds a candidate's network to the server at target, and returns the candidate's address of the
// server.
func (e *election) addNetwork(target string) (addr string) {
	p, err := testenv.NewProxy(testenv.ProxyConfig{Target: target})
	require.NoError(e, err)
	e.Cleanup(p.Close)
	e.networks = append(e.networks, p)
	return p.Addr()
}

// close stops all candidates. It can be called more than once.
func (e *election) close() {
	for _, stop := range e.stop {
		stop()
	}
	e.running.Wait()
}

// networks are the networks between the candidates and the first server.
type networks []*testenv.Proxy

// cut drops all messages until heal is called. Connections stay open.
func (n networks) cut() {
	for _, p := range n {
		p.Cut()
	}
}

func (n networks) heal() {
	for _, p := range n {
		p.Heal()
	}
}

// drop closes the connections of all candidates.
func (n networks) drop() {
	for _, p := range n {
		p.Drop()
	}
}

// dropRepeatedly closes the connections five times within a timeout.
func (n networks) dropRepeatedly() {
	for range 5 {
		n.drop()
		time.Sleep(timeout / 8)
	}
}

// limitIdle closes each connection on which nothing was sent for some time, for two timeouts.
func (n networks) limitIdle(limit time.Duration) {
	set := func(limit time.Duration) {
		for _, p := range n {
			p.SetIdleLimit(limit)
			p.Drop()
		}
	}
	set(limit)
	time.Sleep(2 * timeout)
	set(0)
}

// connectTo makes the candidates connect to another address.
func (n networks) connectTo(addr string) {
	for _, p := range n {
		p.SetTarget(addr)
		p.Drop()
	}
}

// disconnect makes connections fail until connectTo is called.
func (n networks) disconnect() { n.connectTo("127.0.0.1:1") }
