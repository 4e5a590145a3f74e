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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestReplicasAccepted: WithReplicas and WithRisk both accept a replicated bucket; a bucket
// that is to be made with one replica does not.
func TestReplicasAccepted(t *testing.T) {
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
		s := newStore(t, conn, place(), c.opts...)
		s.release = func() string { return "2.10.0" }
		err := s.replicable(3)
		if c.accepted {
			require.NoError(t, err, name)
		} else {
			require.ErrorAs(t, err, new(*changefeed.UnsafeError), name)
			require.ErrorContains(t, err, `the number of replicas is "3"`)
		}
	}
	_, err := New(conn, place(), key, WithRisk("fire"))
	require.Error(t, err)
}

// TestReplicated: servers that would acknowledge two writes to one revision are refused. So
// are others unless the program accepts them.
func TestReplicated(t *testing.T) {
	t.Parallel()
	all := cluster(t) // with a replicated bucket
	conn := connect(t, all[0].Addr())
	for _, s := range []*Store{newStore(t, conn, "first"), newStore(t, conn, "first", WithReplicas(1))} {
		require.ErrorIs(t, s.Start(ctx(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
	}
	if atLeast(conn.ConnectedServerVersion(), 2, 9, 21) {
		accepted(t, all)
		return
	}
	for _, bucket := range []string{"first", "none"} {
		s := newStore(t, conn, bucket, WithReplicas(3))
		err := s.Start(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorContains(t, err, conn.ConnectedServerVersion())
		require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
	}
	s := newStore(t, conn, "single")
	require.NoError(t, s.Start(ctx(t)))
	require.NoError(t, s.Create(ctx(t), blank))
	r, err := s.Read(ctx(t))
	require.NoError(t, err)
	beat(t, newStore(t, connect(t, all[1].Addr()), "single"), r)
}

// accepted: conflicts of replicated buckets have a code of their own, reads are answered by
// any replica, and the bucket outlives a server.
func accepted(t *testing.T, all []*dbserver.Server) {
	backend := func(t testing.TB) *storetest.Backend {
		bucket, operator, n := place(), connect(t, all[0].Addr()), 0
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				n++
				return newStore(t, connect(t, all[n%len(all)].Addr()), bucket, WithReplicas(3))
			},
			Lose: func(t testing.TB) { dropBucket(t, operator, bucket) },
			Put: func(t testing.TB, name string) {
				_, err := bucketOf(t, operator, bucket).Put(ctx(t), name, []byte("1"))
				require.NoError(t, err)
			},
			Is:       func(change any, name string) bool { return change.(Change).Key == name },
			Patience: 30 * time.Second,
		}
	}
	for _, c := range storetest.Cases() {
		switch c.Name {
		case "GoroutineLeaks", "Restart": // Other tests run in parallel, and LeaderKilled restarts the server.
		default:
			t.Run(c.Name, func(t *testing.T) { c.Run(t, backend) })
		}
	}
	t.Run("LeaderKilled", func(t *testing.T) {
		b := backend(t)
		s := b.New(t)
		require.NoError(t, s.Create(ctx(t), blank))
		r, err := s.Read(ctx(t))
		require.NoError(t, err)
		js, err := jetstream.New(connect(t, all[0].Addr()))
		require.NoError(t, err)
		stream, err := js.Stream(ctx(t), "KV_"+s.(*Store).bucket)
		require.NoError(t, err)
		require.NotNil(t, stream.CachedInfo().Cluster)
		var leader int
		_, err = fmt.Sscanf(stream.CachedInfo().Cluster.Leader, "n%d", &leader)
		require.NoError(t, err)
		other := newStore(t, connect(t, all[(leader+1)%3].Addr()), s.(*Store).bucket, WithReplicas(3))
		_, err = other.Read(ctx(t))
		require.NoError(t, err)
		require.NoError(t, all[leader].Kill())
		next := r
		next.Seq++
		for patience := ctx(t); ; {
			try, cancel := context.WithTimeout(patience, time.Second)
			_, err := other.Heartbeat(try, r, next)
			cancel()
			if err == nil || errors.Is(err, changefeed.ErrConflict) { // with a try whose answer was lost
				break
			}
			require.NotErrorIs(t, err, changefeed.ErrNoRecord, "a bucket without a leader is there")
			require.NoError(t, patience.Err())
		}
		now, err := other.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, next.Seq, now.Seq)
		require.NoError(t, all[leader].Start())
	})
}

func TestReleases(t *testing.T) {
	for release, want := range map[string]bool{
		"2.9.20": false, "2.9.21": true, "2.10.0": true, "3.0.0": true, "1.99.99": false, "v2.9.22": true,
		"2.10.0-RC.1": true, "": false, "dev": false, "2.9": false,
	} {
		require.Equal(t, want, atLeast(release, 2, 9, 21), release)
	}
}

// TestBucketMadeAtOnce: many make the same bucket at the same time, each on a connection of
// its own, and to all of them it is there then.
func TestBucketMadeAtOnce(t *testing.T) {
	server := shared.Get(t)
	const creators, rounds = 8, 10
	conns := make([]func(bucket string) *Store, creators)
	for i := range conns {
		conn := connect(t, server.Addr())
		conns[i] = func(bucket string) *Store { return newStore(t, conn, bucket) }
	}
	for range rounds {
		bucket := place()
		errs := make([]error, creators)
		var all sync.WaitGroup
		for i, newStore := range conns {
			s := newStore(bucket)
			all.Go(func() { errs[i] = s.Create(ctx(t), changefeed.Record{Epoch: "e", Seq: 1}) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

// TestSubjectsOfAnother: a stream that has the bucket's subjects keeps it from being made,
// and nobody waits for it to go.
func TestSubjectsOfAnother(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := place()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	_, err = js.CreateStream(ctx(t), jetstream.StreamConfig{Name: "other-" + bucket, Subjects: []string{"$KV." + bucket + ".>"}})
	require.NoError(t, err)
	err = newStore(t, conn, bucket).Create(ctx(t), changefeed.Record{Epoch: "e", Seq: 1})
	require.True(t, isOverlap(err), "%v", err)
}
