package nats

// What goes wrong with records in NATS if nobody sees to it.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestServerGone: a watcher has no errors, and stopping it takes five seconds while the
// server is away. The feed says at once that it has ended, and closes within two seconds.
func TestServerGone(t *testing.T) {
	shared.Get(t)
	server, err := dbserver.NATS()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	s, r := created(t, connect(t, server.Addr()), place())
	f := subscribe(t, s)
	tells(t, f, r)
	c, err := s.Changes(ctx(t), "")
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() { _, err := f.Next(ctx(t)); waits <- err }()
	begin := time.Now()
	require.NoError(t, server.Kill())
	require.ErrorIs(t, <-waits, errDisconnected)
	_, err = c.Next(ctx(t))
	require.ErrorIs(t, err, errDisconnected)
	require.Less(t, time.Since(begin), quiet, "until the error")
	_, err = f.Next(ctx(t))
	require.ErrorIs(t, err, errDisconnected, "the second time")
	_, err = subscribe(t, s).Next(ctx(t))
	require.ErrorIs(t, err, errDisconnected)

	begin = time.Now()
	require.NoError(t, f.Close())
	require.Less(t, time.Since(begin), closes, "Close of a feed")
	begin = time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begin), closes, "Close of a store with changes")
	require.NoError(t, server.Start()) // the library's goroutines wait for five seconds else
}

// TestLongOutage: a server that is down for more than the library's usual 60 attempts to
// reconnect ends no candidacy.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	shared.Get(t)
	server, err := dbserver.NATS()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	var attempts atomic.Int64
	conn := connect(t, server.Addr(), nats.ReconnectWait(time.Millisecond),
		nats.ReconnectErrHandler(func(*nats.Conn, error) { attempts.Add(1) }))
	e, err := changefeed.NewElection(newStore(t, conn, place()))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	leads := func(after int64) (token int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			if l := e.Current().Leadership; l != nil {
				token = l.Token()
			}
			return token > after
		}, 30*time.Second, 5*time.Millisecond)
		return token
	}
	token := leads(0)
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { return attempts.Load() > 100 }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, server.Start())
	leads(token)
	require.Empty(t, ended)
	electiontest.Confirm(t, e.Resign)
	require.NoError(t, <-ended)
}

// TestServerSilent: a server that says nothing any more is not waited for.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	shared.Get(t)
	server, err := dbserver.NATS()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	s, r := created(t, connect(t, server.Addr()), place())
	f := subscribe(t, s)
	tells(t, f, r)
	require.NoError(t, server.Freeze())
	defer server.Thaw()
	begin := time.Now()
	_, err = f.Next(ctx(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "after the quiet time")
	require.Less(t, time.Since(begin), 10*time.Second)
	begin = time.Now()
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Heartbeat(short, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begin), closes)
	server.Thaw()
}

// TestConsumerForgotten: a consumer that its server has dropped says nothing. The feed asks
// after the quiet time, and tells what it has missed.
func TestConsumerForgotten(t *testing.T) {
	t.Parallel()
	conn := connect(t, shared.Get(t).Addr())
	bucket := place()
	s, r := created(t, conn, bucket)
	f := subscribe(t, s)
	tells(t, f, r)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	stream, err := js.Stream(ctx(t), "KV_"+bucket)
	require.NoError(t, err)
	names := stream.ConsumerNames(ctx(t))
	n := 0
	for name := range names.Name() {
		require.NoError(t, stream.DeleteConsumer(ctx(t), name))
		n++
	}
	require.NoError(t, names.Err())
	require.Equal(t, 1, n)
	begin := time.Now()
	r = beat(t, s, r)
	tells(t, f, r)
	require.Less(t, time.Since(begin), 3*quiet, "the library itself takes ten seconds and more")
}

// TestRevisionsBeginAnew: a bucket that was deleted and made anew numbers its revisions from
// 1, and a late heartbeat must not find its own there.
func TestRevisionsBeginAnew(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := place()
	s, old := created(t, conn, bucket)
	f := subscribe(t, s)
	tells(t, f, old)
	dropBucket(t, conn, bucket)
	_, err := s.Heartbeat(ctx(t), old, old)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = f.Next(ctx(t))
	require.ErrorIs(t, err, errBucket)
	two := blank
	two.Epoch = "two"
	require.NoError(t, s.Create(ctx(t), two))
	now, err := s.Read(ctx(t))
	require.NoError(t, err)
	_, before, err := parse(old.Version)
	require.NoError(t, err)
	_, after, err := parse(now.Version)
	require.NoError(t, err)
	require.Equal(t, before, after, "NATS tells the two apart by itself")
	_, err = s.Heartbeat(ctx(t), old, old)
	require.ErrorIs(t, err, changefeed.ErrConflict)
	still, err := s.Read(ctx(t))
	require.NoError(t, err)
	require.Equal(t, now, still)
}

// TestDeletedKey: a key that is deleted leaves a mark, on which a record can be made.
func TestDeletedKey(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := place()
	s, r := created(t, conn, bucket)
	life, _, err := parse(r.Version)
	require.NoError(t, err)
	kv := bucketOf(t, conn, bucket)
	for _, remove := range []func() error{
		func() error { return kv.Delete(ctx(t), s.name(life)) }, func() error { return kv.Purge(ctx(t), s.name(life)) },
	} {
		f := subscribe(t, s)
		tells(t, f, r)
		require.NoError(t, remove())
		e, err := f.Next(ctx(t))
		require.NoError(t, err)
		require.True(t, e.Missing)
		e, err = subscribe(t, s).Next(ctx(t))
		require.NoError(t, err)
		require.True(t, e.Missing, "a new feed")
		_, err = s.Read(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		_, err = s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		require.NoError(t, s.Create(ctx(t), blank))
		_, err = s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		r, err = s.Read(ctx(t))
		require.NoError(t, err)
		tells(t, f, r)
	}
}

// TestUnsuitable: what can never work is told at the start, and nothing is changed.
func TestUnsuitable(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"Memory":    func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"TTL":       func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"Stream":    func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1 },
		"Discards":  func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 10 },
		"SmallOnes": func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 },
		"Mirror": func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "KV_" + place()}
		},
		"Sealed": func(c *jetstream.StreamConfig) { c.Sealed = true },
	} {
		t.Run(name, func(t *testing.T) {
			bucket := place()
			c := jetstream.StreamConfig{
				Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"},
				MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: 1,
			}
			sealed := c
			change(&c)
			if c.Sealed { // which servers accept of what exists
				_, err := js.CreateStream(ctx(t), sealed)
				require.NoError(t, err)
				_, err = js.UpdateStream(ctx(t), c)
				require.NoError(t, err)
			} else {
				_, err := js.CreateStream(ctx(t), c)
				require.NoError(t, err)
			}
			s := newStore(t, conn, bucket)
			for what, err := range map[string]error{"Start": s.Start(ctx(t)), "Create": s.Create(ctx(t), blank)} {
				require.ErrorIs(t, err, changefeed.ErrUnsuitable, what)
				require.ErrorContains(t, err, bucket)
			}
			stream, err := js.Stream(ctx(t), "KV_"+bucket)
			require.NoError(t, err)
			require.Zero(t, stream.CachedInfo().State.LastSeq)
		})
	}
	t.Run("OtherData", func(t *testing.T) {
		bucket := place()
		s, r := created(t, conn, bucket)
		life, _, err := parse(r.Version)
		require.NoError(t, err)
		f := subscribe(t, s)
		tells(t, f, r)
		_, err = bucketOf(t, conn, bucket).PutString(ctx(t), s.name(life), "my own")
		require.NoError(t, err)
		require.ErrorIs(t, s.Start(ctx(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
		_, err = s.Read(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		_, err = f.Next(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	})
	t.Run("NoBucket", func(t *testing.T) {
		bucket := place()
		s := newStore(t, conn, bucket, WithExistingBucket())
		require.ErrorIs(t, s.Start(ctx(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrNoRecord)
		_, err := s.Changes(ctx(t), "")
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		require.NoError(t, newStore(t, conn, bucket).Start(ctx(t)))
		_, err = js.KeyValue(ctx(t), bucket)
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound, "Start has made it")
		require.NoError(t, newStore(t, conn, bucket).Create(ctx(t), blank))
		require.NoError(t, s.Start(ctx(t)))
	})
	t.Run("Closed", func(t *testing.T) {
		conn := connect(t, shared.Get(t).Addr())
		s, r := created(t, conn, place())
		f := subscribe(t, s)
		tells(t, f, r)
		conn.Close()
		for what, err := range map[string]error{
			"Next":  func() error { _, err := f.Next(ctx(t)); return err }(),
			"Start": s.Start(ctx(t)),
		} {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable, what)
			require.ErrorIs(t, err, leaderelection.ErrConnClosed, what)
		}
		_, err := s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable, "it would say that nothing was written")
	})
}

// TestNoJetStream: a server without it is told at the start.
func TestNoJetStream(t *testing.T) {
	t.Parallel()
	shared.Get(t)
	server, err := dbserver.NATS("--jetstream=false")
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	err = newStore(t, connect(t, server.Addr()), place()).Start(ctx(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "JetStream")
}

func config(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestPermissions: a server tells a client that it may not publish beside an answer that
// never comes.
func TestPermissions(t *testing.T) {
	t.Parallel()
	shared.Get(t)
	server, err := dbserver.NATS("--config", config(t, `
authorization: { users: [
	{ user: owner, password: secret }
	{ user: reader, password: secret, permissions: { publish: { deny: "$KV.>" } } }
	{ user: stranger, password: secret, permissions: { publish: { deny: "$JS.>" } } }
	{ user: candidate, password: secret, permissions: {
		publish: [ "$KV.jobs.jobs.nightly.*", "$JS.API.STREAM.INFO.KV_jobs", "$JS.API.STREAM.MSG.GET.KV_jobs",
			"$JS.API.DIRECT.GET.KV_jobs.>", "$JS.API.CONSUMER.CREATE.KV_jobs.>", "$JS.API.CONSUMER.DELETE.KV_jobs.>", "$JS.FC.>" ]
		subscribe: "_INBOX.>" } }
] }`))
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	as := func(name string) *Store {
		return newStore(t, connect(t, server.Addr(), nats.UserInfo(name, "secret")), "jobs")
	}
	owner := as("owner")
	require.NoError(t, owner.Create(ctx(t), blank))
	require.NoError(t, owner.Start(ctx(t)))
	for _, name := range []string{"reader", "stranger"} {
		s := as(name)
		err := s.Start(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, name)
		require.ErrorIs(t, err, leaderelection.ErrPermission, name)
	}
	candidate := as("candidate")
	require.NoError(t, candidate.Start(ctx(t)))
	r, err := candidate.Read(ctx(t))
	require.NoError(t, err)
	f := subscribe(t, candidate)
	tells(t, f, r)
	tells(t, f, beat(t, candidate, r))
	require.NoError(t, f.Close())
	require.NoError(t, candidate.conn.LastError(), "the permissions that the documentation names")

	// What the program was refused on the connection does not make a server that is slow
	// one that refuses.
	require.NoError(t, candidate.conn.Publish("$KV.jobs.another", nil))
	require.NoError(t, candidate.conn.Flush())
	require.ErrorIs(t, candidate.conn.LastError(), nats.ErrPermissionViolation)
	require.NoError(t, server.Freeze())
	defer server.Thaw()
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = candidate.Read(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
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

func TestReleases(t *testing.T) {
	for release, want := range map[string]bool{
		"2.9.20": false, "2.9.21": true, "2.10.0": true, "3.0.0": true, "1.99.99": false, "v2.9.22": true,
		"2.10.0-RC.1": true, "": false, "dev": false, "2.9": false,
	} {
		require.Equal(t, want, atLeast(release, 2, 9, 21), release)
	}
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

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	server, bucket := shared.Get(t), place()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network, err := dbserver.NewProxy(server.Addr())
		require.NoError(t, err)
		t.Cleanup(network.Close)
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr()), bucket), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}
