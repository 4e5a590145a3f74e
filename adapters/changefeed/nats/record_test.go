package nats

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
)

// TestHeartbeat_ConflictsWithRecreatedBucket checks that a delayed heartbeat does not replace the record of a bucket
// that was deleted and created again: the revisions of the new bucket restart.
func TestHeartbeat_ConflictsWithRecreatedBucket(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := newBucket()
	s, old := createRecord(t, conn, bucket)
	f := fixture.SubscribeTo(t, s, old)
	deleteBucket(t, conn, bucket)
	_, err := s.Heartbeat(fixture.Context(t), old, old)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = f.Next(fixture.Context(t))
	require.ErrorIs(t, err, errBucketReplaced)
	two := fixture.HeldRecord()
	two.Epoch = "two"
	require.NoError(t, s.Create(fixture.Context(t), two))
	now := fixture.Read(t, s)
	_, before, err := parseVersion(old.Version)
	require.NoError(t, err)
	_, after, err := parseVersion(now.Version)
	require.NoError(t, err)
	require.Equal(t, before, after, "NATS distinguishes the two buckets, so the test has no purpose")
	_, err = s.Heartbeat(fixture.Context(t), old, old)
	require.ErrorIs(t, err, changefeed.ErrConflict)
	still := fixture.Read(t, s)
	require.Equal(t, now, still)
}

// TestStore_ErrorOmitsFailureBeforeSuccess checks that the error of a request that was not answered does not contain
// what the server had reported before the last request that succeeded.
func TestStore_ErrorOmitsFailureBeforeSuccess(t *testing.T) {
	s, r := createRecord(t, connect(t, shared.Get(t).Addr()), newBucket())
	for name, succeed := range map[string]func() error{
		"Start":     func() error { return s.Start(fixture.Context(t)) },
		"Create":    func() error { return s.Create(fixture.Context(t), fixture.HeldRecord()) },
		"Read":      func() error { _, err := s.Read(fixture.Context(t)); return err },
		"Heartbeat": func() error { _, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r)); return err },
	} {
		timeout := func() string { return s.wrapOutcome(t.Context(), "write", context.DeadlineExceeded).Error() }
		require.Error(t, s.wrapError(t.Context(), "read", errors.New("first cause")))
		require.Contains(t, timeout(), "first cause")
		require.NoError(t, succeed(), name)
		require.NotContains(t, timeout(), "first cause", name)
	}
}

// TestCreate_ReplacesDeletedKey checks that the store reports a record as missing if only the marker of its
// deletion remains, and that Create creates the record again.
func TestCreate_ReplacesDeletedKey(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := newBucket()
	s, r := createRecord(t, conn, bucket)
	created, _, err := parseVersion(r.Version)
	require.NoError(t, err)
	kv := openKV(t, conn, bucket)
	for _, remove := range []func() error{
		func() error { return kv.Delete(fixture.Context(t), s.recordKey(created)) }, func() error { return kv.Purge(fixture.Context(t), s.recordKey(created)) },
	} {
		f := fixture.SubscribeTo(t, s, r)
		require.NoError(t, remove())
		e := fixture.NextEvent(t, f)
		require.True(t, e.Missing)
		e = fixture.NextEvent(t, fixture.Subscribe(t, s))
		require.True(t, e.Missing, "a new feed")
		_, err = s.Read(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		_, err = s.Heartbeat(fixture.Context(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
		_, err = s.Heartbeat(fixture.Context(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		r = fixture.Read(t, s)
		fixture.AwaitRecord(t, f, r)
	}
}

// TestHeartbeat_ErrorNamesRevokedPermission checks that the error of a heartbeat contains what the server has
// reported after the permission was revoked: the server does not answer the write, or rejects the connection.
func TestHeartbeat_ErrorNamesRevokedPermission(t *testing.T) {
	t.Parallel()
	for report, users := range map[string]string{
		"ermissions violation":    `{ user: u, password: secret, permissions: { publish: { deny: "$KV.>" } } }`,
		"Authorization Violation": `{ user: u, password: another }`,
	} {
		config := writeConfig(t, "authorization: { users: [ { user: u, password: secret } ] }")
		server := startServer(t, "--config", config)
		s := newStore(t, connect(t, server.Addr(), nats.UserInfo("u", "secret")), newBucket())
		r := fixture.CreateRecord(t, s)
		require.NoError(t, os.WriteFile(config, []byte("authorization: { users: [ "+users+" ] }"), 0o600))
		require.NoError(t, server.Restart())
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Heartbeat(ctx, r, fixture.Next(r))
			require.Error(t, err)
			return strings.Contains(err.Error(), report)
		}, fixture.Patience, time.Millisecond, report)
	}
}

// FuzzParseVersion parses arbitrary versions. A version that parseVersion accepts must be the
// same after it was formatted and parsed again.
func FuzzParseVersion(f *testing.F) {
	f.Add("1700000000000000000.7")
	f.Add("-1.0")
	f.Fuzz(func(t *testing.T, version string) {
		created, revision, err := parseVersion(version)
		if err != nil {
			return
		}
		require.NotZero(t, revision)
		createdAgain, revisionAgain, err := parseVersion(formatVersion(created, revision))
		require.NoError(t, err)
		require.Equal(t, created, createdAgain)
		require.Equal(t, revision, revisionAgain)
	})
}
