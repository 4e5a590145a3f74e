package kubernetes_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// linksClientset reports whether this package depends on client-go's clientset, which contains all APIs of Kubernetes.
func linksClientset(t testing.TB) bool {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	return strings.Contains(string(out), "k8s.io/client-go/kubernetes")
}

// TestFeed_ContinuesAfterSpecialEvents checks that a feed delivers later writes after an event or an end of
// its watch that API servers cause: a bookmark, an expired resourceVersion (410), and the end of the watch
// after some minutes.
func TestFeed_ContinuesAfterSpecialEvents(t *testing.T) {
	bookmark := map[string]any{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "99"}}
	for name, c := range map[string]struct {
		cause func(server *fakeServer, lease string)
		ends  bool // ends means that the event ends the watch, which is so new that the feed may end too.
	}{
		"Bookmark": {cause: func(s *fakeServer, lease string) { s.sendEvent("BOOKMARK", lease, bookmark) }},
		"Expired": {ends: true, cause: func(s *fakeServer, lease string) {
			s.sendEvent("ERROR", lease, failure(http.StatusGone, meta.StatusReasonExpired))
		}},
		"Ended": {ends: true, cause: func(s *fakeServer, _ string) { s.endWatches() }},
	} {
		t.Run(name, func(t *testing.T) {
			lease := newName()
			server, s, r := createRecord(t, lease, kubernetes.WithQuiet(time.Hour))
			f := fixture.SubscribeTo(t, s, r)
			require.Eventually(t, func() bool { return server.countWatches() == 1 }, fixture.Patience, time.Millisecond)
			c.cause(server, lease)
			r = fixture.Heartbeat(t, s, r)
			ctx := fixture.Context(t)
			for {
				e, err := f.Next(ctx)
				require.NoError(t, ctx.Err())
				if err != nil {
					require.True(t, c.ends, err)
					fixture.SubscribeTo(t, s, r)
					return
				}
				if e.Record.Version == r.Version {
					return
				}
			}
		})
	}
}

// TestFeed_ContinuesAfterEndOfLongWatch checks that a feed continues when the API server has ended a watch
// that has lasted for more than a second.
func TestFeed_ContinuesAfterEndOfLongWatch(t *testing.T) {
	for name, end := range map[string]func(server *fakeServer, lease string){
		"Ended": func(s *fakeServer, _ string) { s.endWatches() },
		"Expired": func(s *fakeServer, lease string) {
			s.sendEvent("ERROR", lease, failure(http.StatusGone, meta.StatusReasonExpired))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lease := newName()
			server, s, r := createRecord(t, lease, kubernetes.WithQuiet(time.Hour))
			f := fixture.SubscribeTo(t, s, r)
			opened := time.Now()
			for time.Since(opened) < 1200*time.Millisecond { // Let the watch last longer than a second.
				r = fixture.Heartbeat(t, s, r)
				fixture.AwaitRecord(t, f, r)
				time.Sleep(50 * time.Millisecond)
			}
			end(server, lease)
			for range 3 {
				r = fixture.Heartbeat(t, s, r)
				fixture.AwaitRecord(t, f, r)
			}
		})
	}
}

// TestFeed_ReportsThrottling checks that a feed returns an error when an overloaded API server rejects
// its watch.
func TestFeed_ReportsThrottling(t *testing.T) {
	server, s, _ := createRecord(t, newName())
	server.setIntercept(func(w http.ResponseWriter, _ *http.Request) bool { throttle(w); return true })
	err := fixture.AwaitError(t, fixture.Subscribe(t, s))
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "TooManyRequests")
}

// TestFeed_DeliversRecordsWithoutReads checks that followers do not read the record when the watch delivers it,
// and that a heartbeat is a single request.
func TestFeed_DeliversRecordsWithoutReads(t *testing.T) {
	name := newName()
	server, leader, r := createRecord(t, name)
	follower := newStore(t, server.config(), name, kubernetes.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, follower, r)
	r = fixture.Heartbeat(t, leader, r)
	fixture.AwaitRecord(t, f, r)
	var requests, patches atomic.Int64
	server.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		requests.Add(1)
		if r.Method == http.MethodPatch {
			patches.Add(1)
		}
		return false
	})
	for range 20 {
		r = fixture.Heartbeat(t, leader, r)
		fixture.AwaitRecord(t, f, r)
	}
	require.EqualValues(t, 20, patches.Load())
	require.EqualValues(t, 20, requests.Load())
}

// TestStore_ReplacesSilentConnection checks that the store does not continue to use a connection that has failed
// silently, for example when a load balancer has forgotten it. With HTTP/2 the client would notice after
// 45 seconds.
func TestStore_ReplacesSilentConnection(t *testing.T) {
	server := &fakeServer{leases: map[string]*coordination.Lease{}, watches: map[*watcher]bool{}}
	secure := httptest.NewUnstartedServer(server)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	addr := secure.Listener.Addr().String()
	proxy := startProxy(t, addr)
	var dials atomic.Int64
	config := &rest.Config{
		Host: secure.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			target := addr
			if dials.Add(1) == 1 {
				target = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, target)
		},
	}
	s := newStore(t, config, newName())
	r := fixture.CreateRecord(t, s)
	require.EqualValues(t, 1, dials.Load(), "HTTP/2 uses one connection")
	proxy.Cut()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		got, err := s.Read(ctx)
		return err == nil && got == r
	}, fixture.Patience, 10*time.Millisecond)
}

// TestPartitions_LeaderStopsBeforeNextLeads checks that a leader that is cut off from the API server has stopped when
// the next leader starts.
func TestPartitions_LeaderStopsBeforeNextLeads(t *testing.T) {
	t.Parallel()
	server, name := startFakeServer(t), newName()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := startProxy(t, server.addr)
		return storetest.Client{
			Store: newStore(t, &rest.Config{Host: "http://" + network.Addr()}, name), Cut: network.Cut, Heal: network.Heal,
		}
	}, func() { server.restart(t) })
}

// startProxy starts a proxy for the server at target until the test ends.
func startProxy(t testing.TB, target string) *testenv.Proxy {
	t.Helper()
	p, err := testenv.NewProxy(testenv.ProxyConfig{Target: target})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}
