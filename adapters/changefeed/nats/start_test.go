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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
)

// TestStart_RejectsUnsuitableBucketOrConnection checks that Start and Create reject a bucket or a connection
// with which the store cannot work, and do not change it.
func TestStart_RejectsUnsuitableBucketOrConnection(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"Memory":   func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"TTL":      func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"Stream":   func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1 },
		"Discards": func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 10 },
		"MaxSize":  func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 },
		"Mirror": func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "KV_" + newBucket()}
		},
		"Sealed": func(c *jetstream.StreamConfig) { c.Sealed = true },
	} {
		t.Run(name, func(t *testing.T) {
			bucket := newBucket()
			c := jetstream.StreamConfig{
				Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"},
				MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: 1,
			}
			sealed := c
			change(&c)
			if c.Sealed { // Seal the stream after it was created, because servers do not accept new sealed streams.
				_, err := js.CreateStream(fixture.Context(t), sealed)
				require.NoError(t, err)
				_, err = js.UpdateStream(fixture.Context(t), c)
				require.NoError(t, err)
			} else {
				_, err := js.CreateStream(fixture.Context(t), c)
				require.NoError(t, err)
			}
			s := newStore(t, conn, bucket)
			for _, err := range []error{s.Start(fixture.Context(t)), s.Create(fixture.Context(t), fixture.HeldRecord())} {
				fixture.RequireUnsuitable(t, err, bucket)
			}
			stream, err := js.Stream(fixture.Context(t), "KV_"+bucket)
			require.NoError(t, err)
			require.Zero(t, stream.CachedInfo().State.LastSeq)
		})
	}
	t.Run("Full", func(t *testing.T) {
		bucket := newBucket()
		kv, err := js.CreateKeyValue(fixture.Context(t), jetstream.KeyValueConfig{Bucket: bucket, MaxBytes: 64 << 10})
		require.NoError(t, err)
		require.NoError(t, newStore(t, conn, bucket).Start(fixture.Context(t)))
		_, err = kv.Put(fixture.Context(t), "other", make([]byte, 40<<10))
		require.NoError(t, err)
		fixture.RequireUnsuitable(t, newStore(t, conn, bucket).Start(fixture.Context(t)), "max_bytes is 65536")
	})
	t.Run("OtherData", func(t *testing.T) {
		bucket := newBucket()
		s, r := createRecord(t, conn, bucket)
		created, _, err := parseVersion(r.Version)
		require.NoError(t, err)
		f := fixture.SubscribeTo(t, s, r)
		_, err = openKV(t, conn, bucket).PutString(fixture.Context(t), s.recordKey(created), "data")
		require.NoError(t, err)
		require.ErrorIs(t, s.Start(fixture.Context(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrUnsuitable)
		_, err = s.Read(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		_, err = f.Next(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	})
	t.Run("NoBucket", func(t *testing.T) {
		bucket := newBucket()
		s := newStore(t, conn, bucket, WithoutCreate())
		require.ErrorIs(t, s.Start(fixture.Context(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrNoRecord)
		_, err := s.Changes(fixture.Context(t), "")
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		require.NoError(t, newStore(t, conn, bucket).Start(fixture.Context(t)))
		_, err = js.KeyValue(fixture.Context(t), bucket)
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound, "Start has created the bucket")
		require.NoError(t, newStore(t, conn, bucket).Create(fixture.Context(t), fixture.HeldRecord()))
		require.NoError(t, s.Start(fixture.Context(t)))
	})
	t.Run("Closed", func(t *testing.T) {
		for range 20 { // repeat, because the consumer can end before or after the connection
			conn := connect(t, shared.Get(t).Addr())
			s, r := createRecord(t, conn, newBucket())
			f := fixture.SubscribeTo(t, s, r)
			conn.Close()
			for what, err := range map[string]error{
				"Next":  func() error { _, err := f.Next(fixture.Context(t)); return err }(),
				"Start": s.Start(fixture.Context(t)),
			} {
				require.ErrorIs(t, err, changefeed.ErrUnsuitable, what)
				require.ErrorIs(t, err, leaderelection.ErrConnClosed, what)
			}
			_, err := s.Heartbeat(fixture.Context(t), r, r)
			require.ErrorIs(t, err, leaderelection.ErrConnClosed)
			require.NotErrorIs(t, err, changefeed.ErrUnsuitable, "the outcome is unknown")
		}
	})
}

// TestStart_ErrorNamesMissingJetStream checks that Start reports that the server has no JetStream.
func TestStart_ErrorNamesMissingJetStream(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--jetstream=false")
	fixture.RequireUnsuitable(t, newStore(t, connect(t, server.Addr()), newBucket()).Start(fixture.Context(t)), "JetStream")
}

// TestStart_ReportsMissingPermission checks that Start reports a missing permission, for which the server sends
// a separate message instead of an answer, and that the documented permissions are sufficient.
func TestStart_ReportsMissingPermission(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--config", writeConfig(t, `
authorization: { users: [
	{ user: owner, password: secret }
	{ user: reader, password: secret, permissions: { publish: { deny: "$KV.>" } } }
	{ user: stranger, password: secret, permissions: { publish: { deny: "$JS.>" } } }
	{ user: candidate, password: secret, permissions: {
		publish: [ "$KV.jobs.jobs.nightly.*", "$JS.API.STREAM.INFO.KV_jobs", "$JS.API.STREAM.MSG.GET.KV_jobs",
			"$JS.API.DIRECT.GET.KV_jobs.>", "$JS.API.CONSUMER.CREATE.KV_jobs.>", "$JS.API.CONSUMER.DELETE.KV_jobs.>", "$JS.FC.>" ]
		subscribe: "_INBOX.>" } }
] }`))
	storeOf := func(name string) *Store {
		return newStore(t, connect(t, server.Addr(), nats.UserInfo(name, "secret")), "jobs")
	}
	owner := storeOf("owner")
	require.NoError(t, owner.Create(fixture.Context(t), fixture.HeldRecord()))
	require.NoError(t, owner.Start(fixture.Context(t)))
	for _, name := range []string{"reader", "stranger"} {
		s := storeOf(name)
		err := s.Start(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, name)
		require.ErrorIs(t, err, leaderelection.ErrPermission, name)
	}
	candidate := storeOf("candidate")
	require.NoError(t, candidate.Start(fixture.Context(t)))
	r := fixture.Read(t, candidate)
	f := fixture.SubscribeTo(t, candidate, r)
	fixture.AwaitRecord(t, f, fixture.Heartbeat(t, candidate, r))
	require.NoError(t, f.Close())
	require.NoError(t, candidate.conn.LastError(), "the documented permissions are not sufficient")

	// The server also reports a missing permission for other requests. That report must not be taken for the
	// reason why a slow server has not answered.
	require.NoError(t, candidate.conn.Publish("$KV.jobs.another", nil))
	require.NoError(t, candidate.conn.Flush())
	require.ErrorIs(t, candidate.conn.LastError(), nats.ErrPermissionViolation)
	require.NoError(t, server.Freeze())
	defer server.Thaw()
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := candidate.Read(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
}
