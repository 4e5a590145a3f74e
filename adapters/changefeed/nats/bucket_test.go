package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestCheckReplicas_RequiresOptionOrRisk checks that a replicated bucket is accepted with WithReplicas or
// WithRisk, and rejected without them.
func TestCheckReplicas_RequiresOptionOrRisk(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	for name, c := range map[string]struct {
		opts     []Option
		accepted bool
	}{
		"Default":      {nil, false},
		"WithReplicas": {[]Option{WithReplicas(3)}, true},
		"WithRisk":     {[]Option{WithRisk(changefeed.RiskFailover)}, true},
		"OneReplica":   {[]Option{WithReplicas(1)}, false},
		"OtherRisk":    {[]Option{WithRisk(changefeed.RiskPowerLoss)}, false},
	} {
		s := newStore(t, conn, newBucket(), c.opts...)
		s.release = func() string { return "2.10.0" }
		err := s.checkReplicas(3)
		if c.accepted {
			require.NoError(t, err, name)
		} else {
			require.ErrorAs(t, err, new(*changefeed.UnsafeError), name)
			require.ErrorContains(t, err, `the number of replicas is "3"`)
		}
	}
	_, err := NewStore(conn, newBucket(), key, WithRisk("fire"))
	require.Error(t, err)
}

// TestStore_RejectsUnsafeReplicatedBucket checks that a store rejects servers that can acknowledge two writes to one
// revision, and accepts newer servers only if their risk was accepted.
func TestStore_RejectsUnsafeReplicatedBucket(t *testing.T) {
	t.Parallel()
	all := startCluster(t)
	conn := connect(t, all[0].Addr())
	for _, s := range []*Store{newStore(t, conn, "first"), newStore(t, conn, "first", WithReplicas(1))} {
		require.ErrorIs(t, s.Start(fixture.Context(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrUnsuitable)
	}
	if atLeast(conn.ConnectedServerVersion(), 2, 9, 21) {
		testReplicatedBucket(t, all)
		return
	}
	for _, bucket := range []string{"first", "none"} {
		s := newStore(t, conn, bucket, WithReplicas(3))
		fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), conn.ConnectedServerVersion())
		require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrUnsuitable)
	}
	s := newStore(t, conn, "single")
	require.NoError(t, s.Start(fixture.Context(t)))
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	r := fixture.Read(t, s)
	fixture.Heartbeat(t, newStore(t, connect(t, all[1].Addr()), "single"), r)
}

// testReplicatedBucket tests an accepted bucket with several replicas: conflicts have a different
// error code, any replica answers reads, and the bucket remains available without one of its
// servers.
func testReplicatedBucket(t *testing.T, all []*dbserver.Server) {
	backend := func(t testing.TB) *storetest.Backend {
		bucket, operator, n := newBucket(), connect(t, all[0].Addr()), 0
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				n++
				return newStore(t, connect(t, all[n%len(all)].Addr()), bucket, WithReplicas(3))
			},
			Lose: func(t testing.TB) { deleteBucket(t, operator, bucket) },
			Put: func(t testing.TB, name string) {
				_, err := openKV(t, operator, bucket).Put(fixture.Context(t), name, []byte("1"))
				require.NoError(t, err)
			},
			Is:       func(change any, name string) bool { return change.(Change).Key == name },
			Patience: fixture.Patience,
		}
	}
	for _, c := range storetest.Cases() {
		switch c.Name {
		case "GoroutineLeaks", "Restart":
			// Skip GoroutineLeaks, because other tests run in parallel, and Restart, because the subtest
			// LeaderKilled below kills a server.
		default:
			t.Run(c.Name, func(t *testing.T) { c.Run(t, backend) })
		}
	}
	t.Run("LeaderKilled", func(t *testing.T) {
		b := backend(t)
		s := b.New(t)
		require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
		r := fixture.Read(t, s)
		js, err := jetstream.New(connect(t, all[0].Addr()))
		require.NoError(t, err)
		stream, err := js.Stream(fixture.Context(t), "KV_"+s.(*Store).bucket)
		require.NoError(t, err)
		require.NotNil(t, stream.CachedInfo().Cluster)
		var leader int
		_, err = fmt.Sscanf(stream.CachedInfo().Cluster.Leader, "n%d", &leader)
		require.NoError(t, err)
		other := newStore(t, connect(t, all[(leader+1)%3].Addr()), s.(*Store).bucket, WithReplicas(3))
		fixture.Read(t, other)
		require.NoError(t, all[leader].Kill())
		next := r
		next.Seq++
		for limit := fixture.Context(t); ; {
			attempt, cancel := context.WithTimeout(limit, time.Second)
			_, err := other.Heartbeat(attempt, r, next)
			cancel()
			if err == nil || errors.Is(err, changefeed.ErrConflict) {
				// After an attempt whose response was lost, the record was written and the next attempt conflicts.
				break
			}
			require.NotErrorIs(t, err, changefeed.ErrNoRecord, "a bucket without a leader exists")
			require.NoError(t, limit.Err())
		}
		now := fixture.Read(t, other)
		require.Equal(t, next.Seq, now.Seq)
		require.NoError(t, all[leader].Start())
	})
}

// TestAtLeast_ComparesReleases checks that releases are compared correctly, and that a text that is not a
// number is rejected.
func TestAtLeast_ComparesReleases(t *testing.T) {
	for release, want := range map[string]bool{
		"2.9.20": false, "2.9.21": true, "2.10.0": true, "3.0.0": true, "1.99.99": false, "v2.9.22": true,
		"2.10.0-RC.1": true, "": false, "dev": false, "2.9": false,
	} {
		require.Equal(t, want, atLeast(release, 2, 9, 21), release)
	}
}

// TestCreate_SucceedsIfCalledConcurrently checks that Create does not return an error when stores on other
// connections create the bucket at the same time.
func TestCreate_SucceedsIfCalledConcurrently(t *testing.T) {
	server := shared.Get(t)
	const creators, rounds = 8, 10
	conns := make([]func(bucket string) *Store, creators)
	for i := range conns {
		conn := connect(t, server.Addr())
		conns[i] = func(bucket string) *Store { return newStore(t, conn, bucket) }
	}
	for range rounds {
		bucket := newBucket()
		errs := make([]error, creators)
		var all sync.WaitGroup
		for i, newStore := range conns {
			s := newStore(bucket)
			all.Go(func() { errs[i] = s.Create(fixture.Context(t), changefeed.Record{Epoch: "e", Seq: 1}) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

// TestCreate_FailsIfOtherStreamUsesSubjects checks that Create does not wait indefinitely when another stream uses
// the subjects of the bucket.
func TestCreate_FailsIfOtherStreamUsesSubjects(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := newBucket()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	_, err = js.CreateStream(fixture.Context(t), jetstream.StreamConfig{Name: "other-" + bucket, Subjects: []string{"$KV." + bucket + ".>"}})
	require.NoError(t, err)
	err = newStore(t, conn, bucket).Create(fixture.Context(t), changefeed.Record{Epoch: "e", Seq: 1})
	require.True(t, isSubjectsOverlap(err), "%v", err)
}
