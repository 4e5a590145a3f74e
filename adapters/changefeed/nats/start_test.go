package nats

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

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
