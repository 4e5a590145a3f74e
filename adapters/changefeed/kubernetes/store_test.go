package kubernetes_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

func TestStore_SatisfiesContract(t *testing.T) { storetest.Run(t, newFactory(startFakeServer)) }

// TestElections_SatisfyContract tests the contract of elections. The cases run in parallel, each on a
// separate server.
func TestElections_SatisfyContract(t *testing.T) {
	fixture.RunElections(t, newFactory(startFakeServer), newFactory(startFakeServer))
}

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments,
// such as a nil config or an empty name.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	for name, create := range map[string]func() (*kubernetes.Store, error){
		"NoConfig":    func() (*kubernetes.Store, error) { return kubernetes.NewStore(nil, "default", "x") },
		"NoNamespace": func() (*kubernetes.Store, error) { return kubernetes.NewStore(config, "", "x") },
		"NoName":      func() (*kubernetes.Store, error) { return kubernetes.NewStore(config, "default", "") },
		"Slash":       func() (*kubernetes.Store, error) { return kubernetes.NewStore(config, "default", "jobs/report") },
		"UpperCase":   func() (*kubernetes.Store, error) { return kubernetes.NewStore(config, "default", "Report") },
		"NilOption":   func() (*kubernetes.Store, error) { return kubernetes.NewStore(config, "default", "x", nil) },
		"QuietTooShort": func() (*kubernetes.Store, error) {
			return kubernetes.NewStore(config, "default", "x", kubernetes.WithQuiet(0))
		},
		"Config": func() (*kubernetes.Store, error) {
			return kubernetes.NewStore(&rest.Config{Host: "http://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}, "default", "x")
		},
	} {
		_, err := create()
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
	}
}

// TestLease_FieldsShowLeader checks that the store sets the fields of a Lease from the record, so that
// kubectl shows the leader.
func TestLease_FieldsShowLeader(t *testing.T) {
	name := newName()
	server, s, r := createRecord(t, name)
	next := r
	next.Seq, next.Term, next.Leader, next.Session, next.Nominee, next.TTL = 2, 1<<40, "pod-1", "s", "pod-2", 1500*time.Millisecond
	before := time.Now().Truncate(time.Microsecond)
	next, err := s.Heartbeat(fixture.Context(t), r, next)
	require.NoError(t, err)
	first := server.lease(name)
	require.Equal(t, "pod-1", *first.Spec.HolderIdentity)
	require.EqualValues(t, 2, *first.Spec.LeaseDurationSeconds, "1.5 s, rounded up")
	require.False(t, first.Spec.RenewTime.Time.Before(before))
	require.Equal(t, first.Spec.RenewTime, first.Spec.AcquireTime)
	require.EqualValues(t, 2, *first.Spec.LeaseTransitions, "the record began with a leader")
	require.Nil(t, first.Spec.PreferredHolder)

	next = fixture.Heartbeat(t, s, next)
	second := server.lease(name)
	require.Equal(t, first.Spec.AcquireTime, second.Spec.AcquireTime, "a heartbeat is not an acquisition")
	require.Equal(t, first.Spec.LeaseTransitions, second.Spec.LeaseTransitions)

	released := fixture.Next(next)
	released.Leader, released.Session, released.TTL = "", "", 0
	_, err = s.Heartbeat(fixture.Context(t), next, released)
	require.NoError(t, err)
	third := server.lease(name)
	require.Nil(t, third.Spec.HolderIdentity)
	require.Nil(t, third.Spec.LeaseDurationSeconds, "0 is invalid")
	require.EqualValues(t, 2, *third.Spec.LeaseTransitions)

	released = fixture.Read(t, s)
	vacant := fixture.Next(released)
	vacant.Term++
	_, err = s.Heartbeat(fixture.Context(t), released, vacant)
	require.NoError(t, err)
	require.EqualValues(t, 2, *server.lease(name).Spec.LeaseTransitions, "a term without a leader is not a leadership")
	require.Equal(t, first.Spec.AcquireTime, server.lease(name).Spec.AcquireTime)
}

// TestLease_KeepsOtherMetadata checks that a heartbeat does not remove what other programs have added to the Lease.
func TestLease_KeepsOtherMetadata(t *testing.T) {
	name := newName()
	server, s, r := createRecord(t, name)
	server.putLease(name, func(l *coordination.Lease) *coordination.Lease {
		l.Labels = map[string]string{"app": "report"}
		l.Annotations["note"] = "keep"
		return l
	})
	fixture.Heartbeat(t, s, r)
	l := server.lease(name)
	require.Equal(t, "report", l.Labels["app"])
	require.Equal(t, "keep", l.Annotations["note"])
	_, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	require.ErrorIs(t, err, changefeed.ErrConflict, "the record has changed")

	r = fixture.Read(t, s)
	same := server.lease(name)
	uid := same.UID
	server.putLease(name, func(*coordination.Lease) *coordination.Lease { return nil })
	server.putLease(name, func(*coordination.Lease) *coordination.Lease { return same })
	require.NotEqual(t, uid, server.lease(name).UID)
	_, err = s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	require.ErrorIs(t, err, changefeed.ErrConflict, "another Lease has the same record")
}

// TestHeartbeat_LimitsRetriesAmongManyChanges checks that a heartbeat is not repeated without a limit when other
// programs change the Lease.
func TestHeartbeat_LimitsRetriesAmongManyChanges(t *testing.T) {
	name := newName()
	server, s, r := createRecord(t, name)
	patches := 0
	server.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			patches++
			server.putLease(name, func(l *coordination.Lease) *coordination.Lease { return l })
		}
		return false
	})
	_, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	require.ErrorIs(t, err, changefeed.ErrConflict)
	require.Equal(t, 4, patches)
}

// TestClose_LeavesNoGoroutinesWithCertificate checks that Close of a store that has read a client certificate
// from files leaves no goroutines.
func TestClose_LeavesNoGoroutinesWithCertificate(t *testing.T) {
	before := goleak.IgnoreCurrent()
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	config.CAFile, config.CertFile, config.KeyFile = testenv.NewAuthority(t).Files("client")
	s, err := kubernetes.NewStore(config, "default", "x")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	goleak.VerifyNone(t, before)
	require.Empty(t, config.CertData, "the config is changed")
}

// TestErrors_ContainNoPassword checks that an error does not contain the password of the address.
func TestErrors_ContainNoPassword(t *testing.T) {
	for _, host := range []string{"http://user:secret@127.0.0.1:1", "user:secret@127.0.0.1:1"} {
		s := newStore(t, &rest.Config{Host: host}, "x")
		_, err := s.Read(fixture.Context(t))
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestLease_IsNotUsedWhileClientGoLeads checks that the store rejects a Lease whose holder is a candidate of
// client-go's election, so that the two elections do not overwrite each other's Lease.
func TestLease_IsNotUsedWhileClientGoLeads(t *testing.T) {
	name := newName()
	server, s, r := createRecord(t, name)
	holder := "a candidate of client-go"
	server.putLease(name, func(l *coordination.Lease) *coordination.Lease { l.Spec.HolderIdentity = &holder; return l })
	_, err := s.Read(fixture.Context(t))
	fixture.RequireUnsuitable(t, err, "holderIdentity")
	_, err = s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	fixture.RequireUnsuitable(t, err, "holderIdentity")
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "holderIdentity")
	err = fixture.AwaitError(t, fixture.Subscribe(t, s))
	fixture.RequireUnsuitable(t, err, "holderIdentity")

	other := newName()
	server.putLease(other, func(*coordination.Lease) *coordination.Lease {
		return &coordination.Lease{Spec: coordination.LeaseSpec{HolderIdentity: &holder}}
	})
	fixture.RequireUnsuitable(t, newStore(t, server.config(), other).Start(fixture.Context(t)), "annotation")
}

// TestWithoutCreate_UsesEmptyLease checks that a store with WithoutCreate creates no Lease, but writes its
// record to an empty Lease.
func TestWithoutCreate_UsesEmptyLease(t *testing.T) {
	server, name := startFakeServer(t), newName()
	server.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			t.Error("the store sends a request to create")
		}
		return false
	})
	s := newStore(t, server.config(), name, kubernetes.WithoutCreate())
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "create it")
	require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrNoRecord)
	server.putLease(name, func(*coordination.Lease) *coordination.Lease { return &coordination.Lease{} })
	_, err := s.Read(fixture.Context(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	r := fixture.CreateRecord(t, s)
	require.NoError(t, s.Create(fixture.Context(t), changefeed.Record{Epoch: "another"}))
	require.Equal(t, r, fixture.Read(t, s))
}

// TestErrors_HaveDocumentedMeaning checks that the store translates each error of the API server as documented.
func TestErrors_HaveDocumentedMeaning(t *testing.T) {
	_, s, r := createRecord(t, newName())
	for name, c := range map[string]struct {
		code    int
		reason  meta.StatusReason
		meaning error // meaning is the error that the error must wrap, or nil if the outcome is unknown.
	}{
		"Forbidden":     {http.StatusForbidden, meta.StatusReasonForbidden, leaderelection.ErrPermission},
		"Unauthorized":  {http.StatusUnauthorized, meta.StatusReasonUnauthorized, leaderelection.ErrPermission},
		"Invalid":       {http.StatusUnprocessableEntity, meta.StatusReasonInvalid, changefeed.ErrUnsuitable},
		"TooLarge":      {http.StatusRequestEntityTooLarge, meta.StatusReasonRequestEntityTooLarge, changefeed.ErrUnsuitable},
		"Throttled":     {http.StatusTooManyRequests, meta.StatusReasonTooManyRequests, nil},
		"ServerTimeout": {http.StatusInternalServerError, meta.StatusReasonServerTimeout, nil},
		"Timeout":       {http.StatusGatewayTimeout, meta.StatusReasonTimeout, nil},
		"Unavailable":   {http.StatusServiceUnavailable, meta.StatusReasonServiceUnavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server, name := startFakeServer(t), newName()
			s := newStore(t, server.config(), name)
			requests := 0
			server.setIntercept(func(w http.ResponseWriter, _ *http.Request) bool {
				requests++
				w.Header().Set("Retry-After", "1")
				fail(w, c.code, c.reason)
				return true
			})
			r := r
			r.Version = "uid/1/0"
			start := time.Now()
			_, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
			require.Equal(t, 1, requests, "the client repeats the request")
			if c.meaning == nil {
				fixture.RequireUnknownOutcome(t, err)
			} else {
				require.ErrorIs(t, err, changefeed.ErrUnsuitable)
				require.ErrorIs(t, err, c.meaning)
				require.ErrorIs(t, s.Start(fixture.Context(t)), c.meaning)
			}
			require.ErrorContains(t, err, "Lease default/"+name)
			t.Log(err, time.Since(start))
		})
	}
	fixture.Heartbeat(t, s, r)
}

// TestStart_RejectsMissingNamespace checks that Start rejects a namespace that does not exist.
func TestStart_RejectsMissingNamespace(t *testing.T) {
	s, err := kubernetes.NewStore(startFakeServer(t).config(), "missing", "x")
	require.NoError(t, err)
	defer s.Close()
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "namespace does not exist")
	fixture.RequireUnsuitable(t, s.Create(fixture.Context(t), fixture.HeldRecord()), "namespace does not exist")
}

// TestStart_WritesNothing checks that Start does not create or change a Lease.
func TestStart_WritesNothing(t *testing.T) {
	server, name := startFakeServer(t), newName()
	s := newStore(t, server.config(), name)
	require.NoError(t, s.Start(fixture.Context(t)))
	require.Nil(t, server.lease(name))
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	before := server.lease(name)
	require.NoError(t, s.Start(fixture.Context(t)))
	require.Equal(t, before, server.lease(name))
}

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	server := startFakeServer(t)
	start := func(t *testing.T, _ ...changefeed.Risk) error {
		return newStore(t, server.config(), newName()).Start(fixture.Context(t))
	}
	const hidden = "an API server does not reveal its storage"
	fixture.CheckSafety(t, "Kubernetes", map[string]fixture.SafetyCase{
		"etcd with its default settings":                         {Start: start},
		"etcd with --unsafe-no-fsync, or restored from a backup": {Start: start, NotChecked: hidden},
		"kine (k3s) on an SQL database":                          {Start: start, NotChecked: hidden},
	})
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store links neither the
// driver of another store nor all APIs of Kubernetes.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "k8s.io/client-go/rest")
	require.False(t, linksClientset(t), "the clientset of client-go is linked")
}

// FuzzDecode decodes arbitrary annotations. Decode must not return a record without an epoch.
func FuzzDecode(f *testing.F) {
	valid, err := store.Encode(fixture.HeldRecord())
	require.NoError(f, err)
	f.Add(string(valid), strings.Repeat("p", 3000))
	f.Add("{}", "")
	f.Fuzz(func(t *testing.T, annotation, holder string) {
		l := &coordination.Lease{Spec: coordination.LeaseSpec{HolderIdentity: &holder}}
		l.Annotations, l.UID, l.ResourceVersion = map[string]string{kubernetes.Annotation: annotation}, "uid", "1"
		r, err := kubernetes.Decode(l)
		if err != nil {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			return
		}
		require.Equal(t, holder, r.Leader)
		require.Equal(t, "uid/1/0", r.Version)
		require.NotEmpty(t, r.Epoch)
	})
}
