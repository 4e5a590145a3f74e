//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
)

// TestForgedMessages: whoever may PUBLISH on the channel needs no permission for the key. A
// message is believed to be a heartbeat at most; any other makes the feed read the record, and
// delivers nothing if that is as before.
func TestForgedMessages(t *testing.T) {
	server := shared.Get(t)
	operator, key := newClient(t, server.Addr(), nil), newKey()
	s, r := created(t, operator, key)
	client := newClient(t, server.Addr(), nil)
	f := subscribe(t, newStore(t, client, key, redis.WithQuiet(time.Hour)))
	tells(t, f, "the record", r.Version)
	reads := calls(client)
	send := func(r changefeed.Record) {
		require.NoError(t, operator.Publish(bounded(t), "changefeed:0:"+key, "1 "+codec.EncodeMessage(r)).Err())
	}

	for what, forged := range forgeries(r) {
		before := reads.Load()
		send(forged)
		require.Eventually(t, func() bool { return reads.Load() > before }, patience, time.Millisecond, what)
		tellsNothing(t, f, what)
	}
	forged := r
	forged.Seq, forged.Version = r.Seq+1, "forged"
	send(forged)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.True(t, e.Hint, "a heartbeat is not delivered as a hint")
	r = beat(t, s, r) // with the Seq of the forged one
	e, err = f.Next(bounded(t))
	require.NoError(t, err)
	require.False(t, e.Hint, "the record was read")
	require.Equal(t, r, e.Record)
}

// forgeries are messages that a client can send which has no permission for the record: what
// they claim, of the record that follows r.
func forgeries(r changefeed.Record) map[string]changefeed.Record {
	all := map[string]changefeed.Record{}
	for name, change := range map[string]func(*changefeed.Record){
		"the end of the election": func(r *changefeed.Record) { r.Ended = true },
		"the last term":           func(r *changefeed.Record) { r.Term = 1<<63 - 2 },
		"a release":               func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		"another leader":          func(r *changefeed.Record) { r.Leader, r.Session = "q", "q's" },
		"a nominee":               func(r *changefeed.Record) { r.Nominee = "q" },
		"a short lease":           func(r *changefeed.Record) { r.TTL = 1 },
		"another epoch":           func(r *changefeed.Record) { r.Epoch = "another" },
		"a distant heartbeat":     func(r *changefeed.Record) { r.Seq += 1000 },
	} {
		forged := r
		forged.Seq++
		change(&forged)
		all[name+", with the true version"] = forged
		forged.Version = "forged"
		all[name] = forged
	}
	return all
}

// tellsNothing: the feed has nothing to deliver.
func tellsNothing(t testing.TB, f changefeed.Feed, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	e, err := f.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "after a forged message, %s, the feed delivers %+v", what, e)
}
