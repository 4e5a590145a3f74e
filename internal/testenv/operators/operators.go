// Package operators tests elections while operators restart, restore and empty the servers, or do something
// similar. It checks that there is at most one leader at each moment, that there is a leader again afterwards, and
// that the log contains the reason if there was no leader.
package operators

import (
	"flag"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

var complete = flag.Bool("operations.complete", false, "run all operations, and not only those that are marked as short")

// Timeout is the session timeout or TTL of the candidates.
const Timeout = 4 * time.Second

// Operation is one test case: something that operators do with the servers of a backend, which have the type S.
type Operation[S any] struct {
	Name  string
	Short bool // Test also runs the operation without -operations.complete.
	// Run does what the operators do. After Run has returned, the test waits for a leader.
	Run func(e *Election, servers S)
	// Reason is a part of the message that the log must contain. It is empty if no leadership needs to end.
	Reason string
}

// Election is an election with several candidates.
type Election struct {
	*testing.T
	log      testenv.Buffer
	Networks Networks
	stop     []func()

	mu       sync.Mutex
	leaders  []*leaderelection.Leadership // all leaderships, in the order in which the candidates have received them
	overlaps []string
	running  sync.WaitGroup
}

// Test executes each operation with its own servers. start must start servers that run until the test ends, and two
// candidates that rejoin.
func Test[S any](t *testing.T, operations []Operation[S], start func(e *Election) S) {
	for _, o := range operations {
		t.Run(o.Name, func(t *testing.T) {
			if !o.Short && !*complete {
				t.Skip("run only with -operations.complete")
			}
			t.Parallel()
			e := &Election{T: t}
			servers := start(e)
			defer e.close()
			defer func() {
				if t.Failed() {
					t.Logf("the log of the candidates:\n%s", e.log.String())
				}
			}()
			e.WaitForLeader(time.Now())
			o.Run(e, servers)
			e.WaitForLog(o.Reason)
			e.WaitForLeader(time.Now().Add(Timeout / 4))
			e.close()
			require.Empty(t, e.overlaps, "two leaders at the same time")
		})
	}
}

// Logger returns the logger of the candidates.
func (e *Election) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(&e.log, nil)) }

// Add starts a candidate. The method close ends it.
func (e *Election) Add(c leaderelection.Candidate) {
	e.running.Go(func() {
		for s := range c.Status() {
			if s.Leadership != nil {
				e.addLeadership(s.Leadership)
			}
		}
	})
	e.running.Go(func() {
		if err := c.ElectLeader(); err != nil {
			e.Logger().Error("the candidacy has ended", "err", err)
		}
	})
	e.stop = append(e.stop, func() { _ = c.Resign() })
}

// StopOldest makes the candidate resign that was added first.
func (e *Election) StopOldest() {
	e.stop[0]()
	e.stop = e.stop[1:]
}

func (e *Election) addLeadership(l *leaderelection.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.leaders {
		if other != l && other.Err() == nil && l.Err() == nil {
			e.overlaps = append(e.overlaps, time.Now().String())
		}
	}
	e.leaders = append(e.leaders, l)
}

// hasLeader reports whether a candidate is the leader, by a lease that the servers have confirmed after the given
// time. On etcd, a lease lasts for three quarters of the timeout after the candidate has sent the confirmed
// request, and longer on ZooKeeper.
func (e *Election) hasLeader(after time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.leaders {
		if l.Err() == nil && l.Deadline().Sub(after) > Timeout*3/4 {
			return true
		}
	}
	return false
}

// WaitForLeader waits until a candidate is the leader, by a lease that the servers have confirmed after the given
// time.
func (e *Election) WaitForLeader(after time.Time) {
	e.Helper()
	e.Eventually(func() bool { return e.hasLeader(after) }, "no leader")
}

// WaitForNoLeader waits until there is no leader.
func (e *Election) WaitForNoLeader() {
	e.Helper()
	e.Eventually(func() bool {
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

// WaitForLog waits until the log contains text.
func (e *Election) WaitForLog(text string) {
	e.Helper()
	e.Eventually(func() bool { return strings.Contains(e.log.String(), text) }, "the log does not contain: "+text)
}

// AddNetwork adds a network between a candidate and the server at target. It returns the address at which the
// candidate must connect.
func (e *Election) AddNetwork(target string) (addr string) {
	p, err := testenv.NewProxy(testenv.ProxyConfig{Target: target})
	require.NoError(e, err)
	e.Cleanup(p.Close)
	e.Networks = append(e.Networks, p)
	return p.Addr()
}

// Eventually waits until the condition is true. After a minute, it fails the test with the message.
func (e *Election) Eventually(condition func() bool, message string) {
	e.Helper()
	require.Eventually(e, condition, time.Minute, 5*time.Millisecond, message)
}

// close makes all candidates resign, and waits until their candidacies are over. It may be called more than once.
func (e *Election) close() {
	for _, stop := range e.stop {
		stop()
	}
	e.running.Wait()
}

// Networks contains the networks between the candidates and the first server.
type Networks []*testenv.Proxy

// Cut drops all messages until Heal is called. Connections stay open.
func (n Networks) Cut() {
	for _, p := range n {
		p.Cut()
	}
}

// Heal lets messages pass again after Cut.
func (n Networks) Heal() {
	for _, p := range n {
		p.Heal()
	}
}

// Drop closes the connections of all candidates.
func (n Networks) Drop() {
	for _, p := range n {
		p.Drop()
	}
}

// DropRepeatedly closes the connections of all candidates five times within a Timeout.
func (n Networks) DropRepeatedly() {
	for range 5 {
		n.Drop()
		time.Sleep(Timeout / 8)
	}
}

// LimitIdle makes the networks close each connection on which nothing was sent for the time limit. It removes the
// limit after two timeouts, and returns.
func (n Networks) LimitIdle(limit time.Duration) {
	set := func(limit time.Duration) {
		for _, p := range n {
			p.SetIdleLimit(limit)
			p.Drop()
		}
	}
	set(limit)
	time.Sleep(2 * Timeout)
	set(0)
}

// ConnectTo makes the candidates connect to another address.
func (n Networks) ConnectTo(addr string) {
	for _, p := range n {
		p.SetTarget(addr)
		p.Drop()
	}
}

// Disconnect makes the connections of candidates fail until ConnectTo is called.
func (n Networks) Disconnect() { n.ConnectTo("127.0.0.1:1") }

// Server is a server of the store of a changefeed.
type Server interface {
	Addr() string
	Kill() error
	Start() error
	Restart() error
	// Backup makes a backup of the present data, and returns the name of the backup.
	Backup() (name string, err error)
	// Restore replaces the data by a backup, and restarts the server.
	Restore(name string) error
	// Freeze suspends the server.
	Freeze() error
	// Thaw continues the server after Freeze.
	Thaw()
}

// OfStore returns the operations that the tests of all stores have in common, followed by more.
func OfStore[S Server](more ...Operation[S]) []Operation[S] {
	return append([]Operation[S]{
		{Name: "Restarted", Reason: "feed failed", Run: func(e *Election, s S) {
			require.NoError(e, s.Kill())
			e.WaitForNoLeader()
			require.NoError(e, s.Start())
		}},
		{Name: "RestartedQuickly", Run: func(e *Election, s S) { require.NoError(e, s.Restart()) }},
		{Name: "Restored", Reason: "failed", Run: func(e *Election, s S) {
			backup, err := s.Backup()
			require.NoError(e, err)
			e.WaitForLeader(time.Now().Add(Timeout)) // the leader writes something that is not in the backup
			require.NoError(e, s.Restore(backup))
		}},
		{Name: "Paused", Reason: "deadline exceeded", Run: func(e *Election, s S) {
			require.NoError(e, s.Freeze())
			e.WaitForNoLeader()
			time.Sleep(Timeout)
			s.Thaw()
		}},
		{Name: "AddressChanged", Reason: "failed", Run: func(e *Election, s S) {
			e.Networks.Disconnect()
			e.WaitForNoLeader()
			e.Networks.ConnectTo(s.Addr())
		}},
	}, more...)
}

// Lasting returns an operation that ends all leaderships as long as it lasts. do begins the operation if on is
// true, and ends it otherwise.
func Lasting[S any](name string, reason string, do func(s S, on bool)) Operation[S] {
	return Operation[S]{Name: name, Reason: reason, Run: func(e *Election, s S) {
		do(s, true)
		e.WaitForNoLeader()
		e.WaitForLog(reason)
		do(s, false)
	}}
}

// InShort returns a copy of o that Test also runs without -operations.complete.
func InShort[S any](o Operation[S]) Operation[S] {
	o.Short = true
	return o
}

// Harmless returns an operation during which no leadership needs to end. Run repeats do for two timeouts.
func Harmless[S any](name string, do func(s S)) Operation[S] {
	return Operation[S]{Name: name, Run: func(_ *Election, s S) {
		for range 4 {
			do(s)
			time.Sleep(Timeout / 2)
		}
	}}
}
