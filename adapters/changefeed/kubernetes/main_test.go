package kubernetes_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var lastName atomic.Int64

// newName returns the name of a Lease that no other test uses.
func newName() string { return fmt.Sprint("lease-", lastName.Add(1)) }

func newStore(t testing.TB, config *rest.Config, name string, opts ...kubernetes.Option) *kubernetes.Store {
	t.Helper()
	s, err := kubernetes.NewStore(config, "default", name, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newFactory returns a factory of backends on the server that serverOf returns.
func newFactory(serverOf func(t testing.TB) *fakeServer) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server, name := serverOf(t), newName()
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := kubernetes.NewStore(server.config(), "default", name)
				require.NoError(t, err)
				return s
			},
			Lose: func(testing.TB) {
				server.putLease(name, func(*coordination.Lease) *coordination.Lease { return nil })
			},
			Restart:  server.restart,
			Patience: fixture.Patience,
		}
	}
}

// createRecord creates a record on a fake server, and returns it with the server and its store.
func createRecord(t testing.TB, name string, opts ...kubernetes.Option) (*fakeServer, *kubernetes.Store, changefeed.Record) {
	t.Helper()
	server := startFakeServer(t)
	s := newStore(t, server.config(), name, opts...)
	return server, s, fixture.CreateRecord(t, s)
}
