package kubernetes

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

var chaos = flag.Duration("chaos", 10*time.Second, "duration of TestLease_TermsDoNotOverlapDuringFaults")

// storeBackend returns a backend for package storetest, whose stores use this API server.
func (s *apiServer) storeBackend(t testing.TB) *storetest.Backend {
	name := newName()
	return &storetest.Backend{
		New:       func(t testing.TB) changefeed.Store { return s.newStore(t, s.config(), name) },
		Lose:      func(testing.TB) { s.deleteLease(name) },
		Restart:   func(testing.TB) { s.restart() },
		Patience:  time.Minute,
		Heartbeat: time.Second,
	}
}

func (s *apiServer) newStore(t testing.TB, c *rest.Config, name string, opts ...kubernetes.Option) *kubernetes.Store {
	t.Helper()
	st, err := kubernetes.NewStore(c, "default", name, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

// TestLease_SatisfiesContract checks that a store on Leases passes the tests of stores and elections in storetest on
// a real API server.
func TestLease_SatisfiesContract(t *testing.T) {
	s := startAPIServer(t)
	t.Run("Store", func(t *testing.T) { storetest.Run(t, s.storeBackend) })
	t.Run("Election", func(t *testing.T) { storetest.RunElection(t, s.storeBackend) })
}

// TestLease_TermsDoNotOverlapDuringFaults checks that a former leader has stopped when the next leader starts, while
// leaders are cut off and the API server is killed. The flag -chaos sets the duration.
func TestLease_TermsDoNotOverlapDuringFaults(t *testing.T) {
	s := startAPIServer(t)
	rounds := 0
	for end := time.Now().Add(*chaos); rounds == 0 || time.Now().Before(end); rounds++ {
		name := newName()
		storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
			network, err := testenv.NewProxy(testenv.ProxyConfig{Target: s.addr()})
			require.NoError(t, err)
			t.Cleanup(network.Close)
			return storetest.Client{Store: s.newStore(t, clientConfig(network.Addr(), adminToken), name), Cut: network.Cut, Heal: network.Heal}
		}, s.restart)
	}
	t.Logf("%d rounds, each with four leaders that were cut off and a killed API server", rounds)
}

// TestLease_KeepsNomineeWithoutPreferredHolder checks that a Lease keeps the nominee, and documents why the store
// writes the nominee to an annotation and not to preferredHolder: the API server drops that field without its feature
// gate, and with the gate rejects a Lease that has the field but no strategy.
func TestLease_KeepsNomineeWithoutPreferredHolder(t *testing.T) {
	gated := startAPIServer(t, "--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true")
	s := startAPIServer(t)
	leases := s.client(adminToken, coordination.SchemeGroupVersion)
	holder := "pod-2"
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: newName()}, Spec: coordination.LeaseSpec{PreferredHolder: &holder}}
	var created coordination.Lease
	require.NoError(t, leases.Post().Namespace("default").Resource("leases").Body(lease).Do(t.Context()).Into(&created))
	require.Nil(t, created.Spec.PreferredHolder)
	err := gated.client(adminToken, coordination.SchemeGroupVersion).Post().Namespace("default").Resource("leases").Body(lease).Do(t.Context()).Error()
	require.True(t, apierrors.IsInvalid(err), err)
	require.ErrorContains(t, err, "strategy")

	name := newName()
	st := s.newStore(t, s.config(), name)
	require.NoError(t, st.Start(t.Context()))
	require.NoError(t, st.Create(t.Context(), changefeed.Record{Epoch: "e", Seq: 1}))
	r, err := st.Read(t.Context())
	require.NoError(t, err)
	next := r
	next.Seq, next.Nominee, next.Leader, next.Session, next.Term, next.TTL = 2, holder, "pod-1", "s", 1<<50, 1500*time.Millisecond
	_, err = st.Heartbeat(t.Context(), r, next)
	require.NoError(t, err)
	kept, err := st.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, holder, kept.Nominee)
	require.EqualValues(t, 1<<50, kept.Term)
	var now coordination.Lease
	require.NoError(t, leases.Get().Namespace("default").Resource("leases").Name(name).Do(t.Context()).Into(&now))
	require.Equal(t, "pod-1", *now.Spec.HolderIdentity)
	require.EqualValues(t, 1, *now.Spec.LeaseTransitions)
	require.EqualValues(t, 2, *now.Spec.LeaseDurationSeconds)
}

// TestLease_PatchOfOldVersionIsRejected checks that the API server rejects a patch with the version of a Lease that
// has since been deleted or changed. storetest requires this of every store; this test checks the errors of the API
// server.
func TestLease_PatchOfOldVersionIsRejected(t *testing.T) {
	s := startAPIServer(t)
	leases := s.client(adminToken, coordination.SchemeGroupVersion)
	patch := func(name, body string) error {
		return leases.Patch(types.MergePatchType).Namespace("default").Resource("leases").Name(name).Body([]byte(body)).Do(context.Background()).Error()
	}
	name := newName()
	require.True(t, apierrors.IsNotFound(patch(name, `{"metadata":{"uid":"u","resourceVersion":"1"}}`)))
	var l coordination.Lease
	require.NoError(t, leases.Post().Namespace("default").Resource("leases").
		Body(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}).Do(t.Context()).Into(&l))
	for what, body := range map[string]string{
		"another uid":             `{"metadata":{"uid":"another","resourceVersion":"` + l.ResourceVersion + `"}}`,
		"another resourceVersion": `{"metadata":{"uid":"` + string(l.UID) + `","resourceVersion":"1"}}`,
	} {
		err := patch(name, body)
		t.Log(what, err)
		require.True(t, apierrors.IsConflict(err) || apierrors.IsInvalid(err), what)
	}
}
