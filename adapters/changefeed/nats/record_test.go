package nats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

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
