package integrationtest

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// restarts is the number of rounds of TestRollingRestart_KeepsSessionsDespiteFrozenServer.
var restarts = flag.Int("restarts", 1, "number of rolling restarts of TestRollingRestart_KeepsSessionsDespiteFrozenServer")

// TestRollingRestart_KeepsSessionsDespiteFrozenServer checks that no client loses its session during a rolling
// restart of three servers, one of which accepts connections but does not answer until it is restarted as the last
// server. A new client that tries the frozen server first must connect within half of its session timeout. A single
// round uses only longer sessions, because a busy machine can lose a session of 4 s.
func TestRollingRestart_KeepsSessionsDespiteFrozenServer(t *testing.T) {
	t.Parallel()
	e := threeServers.acquire(t)
	timeouts := []time.Duration{10 * time.Second}
	if *restarts > 1 {
		timeouts = append(timeouts, shortTimeout)
	}
	lost := 0
	for i := range *restarts {
		begin := time.Now()
		// If the process of a server is frozen, there is no quorum while another server restarts, so no session
		// expires until a server leads again. If only its port for clients is frozen, sessions can expire at any
		// time.
		r := restartRound{e: e, timeouts: timeouts, frozen: i % e.Servers(), portOnly: i%2 == 1}
		lost += r.run(t)
		t.Logf("round %d: %v, %d sessions lost so far", i, time.Since(begin).Round(time.Millisecond), lost)
	}
	require.Zero(t, lost, "sessions lost in %d rolling restarts", *restarts)
}

// restartRound is one rolling restart of all servers.
type restartRound struct {
	e        *ensemble.Ensemble
	timeouts []time.Duration // the timeouts of the sessions
	frozen   int             // the number of the server that is frozen until it is restarted as the last server
	portOnly bool            // whether only the port for clients is frozen, while the server works with the other servers
	addrs    []string
}

func (r *restartRound) run(t *testing.T) (lost int) {
	r.addrs = r.e.Addrs()
	freeze, thaw := func() { require.NoError(t, r.e.Pause(r.frozen)) }, func() {}
	if r.portOnly {
		proxy, err := testenv.NewProxy(testenv.ProxyConfig{Target: r.addrs[r.frozen]})
		require.NoError(t, err)
		defer proxy.Close()
		r.addrs[r.frozen] = proxy.Addr()
		freeze, thaw = proxy.Cut, proxy.Heal
	}
	var clients []*restartClient
	for range 3 {
		for _, timeout := range r.timeouts {
			c := r.connect(t, timeout)
			defer c.Close()
			clients = append(clients, c)
		}
	}
	haveSessions := func() bool {
		for _, c := range clients {
			if c.State() != zk.StateHasSession {
				return false
			}
		}
		return true
	}
	testenv.Eventually(t, haveSessions, "the clients have no sessions")
	freeze()
	for i := range r.e.Servers() {
		server := (r.frozen + 1 + i) % r.e.Servers()
		begin := time.Now()
		require.NoError(t, r.e.Restart(server))
		if server == r.frozen {
			thaw()
		}
		ensemble.WaitReady(t, r.e)
		ready := time.Since(begin)
		testenv.Eventually(t, haveSessions, "the clients do not connect again")
		t.Logf("server %d served clients again after %v, and all clients had sessions after %v",
			server, ready.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		if server != r.frozen {
			for _, timeout := range r.timeouts {
				r.connectNew(t, timeout)
			}
		}
	}
	for _, c := range clients {
		if c.expired.Load() {
			lost++
			t.Logf("a session of %v was lost:\n%s", c.timeout, &c.log)
		}
	}
	return lost
}

// connectNew connects new clients until a client that tries the frozen server first connects within half of its session
// timeout. One attempt is not enough, because the servers may need longer on a busy machine.
func (r *restartRound) connectNew(t *testing.T, timeout time.Duration) {
	for end := time.Now().Add(testenv.WaitLimit); ; {
		require.True(t, time.Now().Before(end), "no new client connects within half of %v", timeout)
		begin := time.Now()
		c := r.connect(t, timeout)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
		_, err := zkdial.Wait(ctx, c.Conn)
		cancel()
		took := time.Since(begin)
		c.Close()
		require.NoError(t, err)
		if *c.first.Load() != r.addrs[r.frozen] {
			continue
		}
		t.Logf("a new client with a timeout of %v has connected after %v", timeout, took.Round(time.Millisecond))
		if took < timeout/2 {
			return
		}
	}
}

// restartClient is a client that must keep its session during a rolling restart.
type restartClient struct {
	*zk.Conn
	timeout time.Duration
	first   atomic.Pointer[string] // the first server that the client has tried
	expired atomic.Bool            // whether the client's session has expired
	log     testenv.Buffer
}

func (r *restartRound) connect(t *testing.T, timeout time.Duration) *restartClient {
	c := &restartClient{timeout: timeout}
	log := slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	c.Conn, _, err = zkdial.Connect(r.addrs, timeout, zkdial.WithLogger(log),
		zkdial.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			c.first.CompareAndSwap(nil, &address)
			log.Info("dial", "server", address)
			return net.DialTimeout(network, address, limit)
		}),
		zkdial.WithClient(zk.WithEventCallback(func(event zk.Event) {
			log.Info(fmt.Sprint(event.State))
			if event.State == zk.StateExpired {
				c.expired.Store(true)
			}
		})))
	require.NoError(t, err)
	return c
}
