// Package kubernetes tests managers of controller-runtime with real servers, and the Kubernetes manifests and
// elections on Leases with a real API server.
package kubernetes

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/adapters/controllerruntime"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/zktest"
)

var runs = flag.Int("runs", 1, "number of leaders that TestManager_ControllersDoNotOverlap cuts off, on each backend")

func TestMain(m *testing.M) {
	flag.Parse()
	logf.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// candidate is a candidate that the function cut permanently disconnects from its servers.
type candidate struct {
	leaderelection.Candidate
	cut func()
}

// TestManager_ControllersDoNotOverlap checks that the controllers of a manager whose candidate is permanently cut off
// have stopped when the controllers of the next manager start.
func TestManager_ControllersDoNotOverlap(t *testing.T) {
	for name, newCandidate := range map[string]func(t testing.TB) func(i int) candidate{
		"ZooKeeper":  onZooKeeper,
		"Etcd":       onEtcd,
		"Changefeed": onChangefeed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newCandidate := newCandidate(t)
			var stopped, started []time.Duration
			for i := range *runs {
				a, b := measureCutOff(t, newCandidate(2*i), newCandidate(2*i+1))
				stopped, started = append(stopped, a), append(started, b)
			}
			t.Logf("%d runs, overlaps: 0, the leader stops after %v, its successor starts after %v", *runs, formatRange(stopped), formatRange(started))
		})
	}
}

// formatRange returns the shortest and the longest of several durations.
func formatRange(all []time.Duration) string {
	shortest, longest := all[0], all[0]
	for _, d := range all {
		shortest, longest = min(shortest, d), max(longest, d)
	}
	return fmt.Sprint(shortest.Round(time.Millisecond), " to ", longest.Round(time.Millisecond))
}

// measureCutOff runs managers with two candidates, and cuts off the first candidate. It returns how long after that the
// controllers of the first manager stopped, and the controllers of the second manager started. On a machine that
// stalls, the first candidate can lose its leadership before it is cut off.
func measureCutOff(t *testing.T, first, second candidate) (stopped, started time.Duration) {
	t.Helper()
	var working, overlaps atomic.Int32
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 2)
	start := func(c candidate) (started, stopped <-chan time.Time) {
		starts, stops := make(chan time.Time, 1), make(chan time.Time, 1)
		m, err := controllerruntime.NewManager(&rest.Config{Host: "http://127.0.0.1:9"}, manager.Options{
			Metrics:        metrics.Options{BindAddress: "0"},
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
		}, c.Candidate)
		require.NoError(t, err)
		require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if working.Add(1) > 1 {
				overlaps.Add(1)
			}
			starts <- time.Now()
			<-ctx.Done()
			working.Add(-1)
			stops <- time.Now()
			return nil
		})))
		go func() { ended <- m.Start(ctx) }()
		return starts, stops
	}
	expect := func(event <-chan time.Time, what string) time.Time {
		t.Helper()
		select {
		case at := <-event:
			return at
		case <-time.After(2 * time.Minute):
			t.Fatalf("the controllers of the %s", what)
			return time.Time{}
		}
	}
	firstStarts, firstStops := start(first)
	expect(firstStarts, "first do not start")
	secondStarts, _ := start(second)
	begin := time.Now()
	first.cut()
	stopped = expect(firstStops, "first do not stop").Sub(begin)
	started = expect(secondStarts, "second do not start").Sub(begin)
	require.Error(t, <-ended, "Start of the manager that was cut off")
	cancel()
	<-ended
	require.Zero(t, overlaps.Load(), "the controllers of two managers work at the same time")
	return stopped, started
}

// sessionTimeout is the session timeout of candidates on ZooKeeper and etcd, and approximately the election timeout
// of candidates on a changefeed.
const sessionTimeout = 3 * time.Second

func onZooKeeper(t testing.TB) func(int) candidate {
	server := zktest.Start(t)
	return func(i int) candidate {
		dial := server.Dialer()
		var gone atomic.Bool
		conn, _, err := server.Connect(sessionTimeout, zk.WithLogInfo(false), zk.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
			if gone.Load() {
				return nil, net.ErrClosed
			}
			return dial(network, addr, d)
		}))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		e, err := leaderelection.NewElection(conn, fmt.Sprint("/manager-", i/2), leaderelection.WithCreateNode(), leaderelection.WithRejoin())
		require.NoError(t, err)
		return candidate{e, func() {
			gone.Store(true)
			server.Blackhole(zktest.BothWays, conn.SessionID())
		}}
	}
}

func onEtcd(t testing.TB) func(int) candidate {
	cluster := dbserver.StartEtcd(t, dbserver.EtcdConfig{})
	return func(i int) candidate {
		network, err := testenv.NewProxy(testenv.ProxyConfig{Target: cluster.Addr(0)})
		require.NoError(t, err)
		t.Cleanup(network.Close)
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + network.Addr()}, Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		e, err := etcd.NewElection(client, fmt.Sprint("/manager-", i/2), etcd.WithCreateNode(), etcd.WithRejoin(), etcd.WithSessionTimeout(sessionTimeout))
		require.NoError(t, err)
		return candidate{e, network.Cut}
	}
}

func onChangefeed(t testing.TB) func(int) candidate {
	table := memory.NewTable()
	return func(i int) candidate {
		network := storetest.NewFaulty(table.Store(fmt.Sprint("manager-", i/2)), 1)
		t.Cleanup(func() { _ = network.Close() })
		e, err := changefeed.NewElection(network, changefeed.WithHeartbeat(sessionTimeout*4/7))
		require.NoError(t, err)
		return candidate{e, func() { network.Cut() }}
	}
}
