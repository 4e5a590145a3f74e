package notice

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestText: every field comes back, and what is no message is told as such.
func TestText(t *testing.T) {
	r := changefeed.Record{
		Epoch: "e", Leader: "<漢字> \"&\n", Session: "s", Nominee: "n", Term: 1 << 60, Seq: 1<<62 + 1,
		TTL: time.Hour + 1, Ended: true, Version: "v", Time: time.UnixMicro(1).UTC(),
	}
	back, ok := Decode("1 " + Encode(r))
	require.True(t, ok)
	require.Equal(t, r, back)
	for _, message := range []string{"", "1", "1 ", "x " + Encode(r), Encode(r), "1 {}", "1 []", `1 {"version":"v"`} {
		_, ok := Decode(message)
		require.False(t, ok, message)
	}
	require.NoError(t, Check(r))
	for _, bad := range []changefeed.Record{{Leader: "\xff"}, {Nominee: "\x00"}, {Epoch: "\xff"}, {Session: "\xff"}, {Term: 1 << 63}, {Seq: 1 << 63}} {
		require.ErrorIs(t, Check(bad), changefeed.ErrUnsuitable)
	}
}

// TestHeartbeat: a message is worth a hint only if it claims that the leader which was delivered
// last has written its next heartbeat, and nothing else.
func TestHeartbeat(t *testing.T) {
	led := changefeed.Record{Epoch: "e", Leader: "p", Session: "s", Term: 7, Seq: 5, TTL: time.Second, Version: "v"}
	next := led
	next.Seq, next.Version, next.Time = 6, "w", time.Now()
	var l Last
	require.False(t, l.Heartbeat(next), "nothing was delivered")
	l.Set(changefeed.Event{Missing: true})
	require.False(t, l.Heartbeat(next), "there was no record")
	l.Set(changefeed.Event{Record: led})
	require.True(t, l.Heartbeat(next))
	require.False(t, l.Heartbeat(led))
	for name, change := range map[string]func(*changefeed.Record){
		"Epoch":   func(r *changefeed.Record) { r.Epoch = "another" },
		"Leader":  func(r *changefeed.Record) { r.Leader = "q" },
		"Release": func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		"Session": func(r *changefeed.Record) { r.Session = "another" },
		"Nominee": func(r *changefeed.Record) { r.Nominee = "q" },
		"Term":    func(r *changefeed.Record) { r.Term++ },
		"TTL":     func(r *changefeed.Record) { r.TTL-- },
		"Ended":   func(r *changefeed.Record) { r.Ended = true },
		"SeqBack": func(r *changefeed.Record) { r.Seq = 4 },
		"SeqFar":  func(r *changefeed.Record) { r.Seq = 1000 },
	} {
		r := next
		change(&r)
		require.False(t, l.Heartbeat(r), name)
	}
	free := led
	free.Leader, free.Session, free.TTL = "", "", 0
	l.Set(changefeed.Event{Record: free})
	free.Seq++
	require.False(t, l.Heartbeat(free), "a record without a leader has no heartbeats")

	l.Set(changefeed.Event{Record: led})
	require.True(t, l.Same(changefeed.Event{Record: led}))
	require.False(t, l.Same(changefeed.Event{Record: next}))
	require.False(t, l.Same(changefeed.Event{Missing: true}))
	l.Set(changefeed.Event{Record: led, Hint: true})
	require.False(t, l.Same(changefeed.Event{Record: led}), "what was read is more than a hint")
}

// TestNewest: the newest replaces what nobody has taken, and an end what there is.
func TestNewest(t *testing.T) {
	ctx, b := context.Background(), Newest[int]()
	b.Put(1)
	b.Put(2)
	v, err := b.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, v)
	b.Put(3)
	broken := errors.New("broken")
	b.End(broken)
	_, err = b.Next(ctx)
	require.ErrorIs(t, err, broken)
	b.End(changefeed.ErrClosed)
	b.End(broken)
	_, err = b.Next(ctx)
	require.ErrorIs(t, err, changefeed.ErrClosed)
}

// TestQueue: everything comes in order; what is too much ends the queue, and is told.
func TestQueue(t *testing.T) {
	ctx, late := context.Background(), errors.New("late")
	b := Queue[int](2, late)
	for i := range 4 {
		b.Put(i)
	}
	for want := range 2 {
		v, err := b.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	_, err := b.Next(ctx)
	require.ErrorIs(t, err, late)

	b = Queue[int](2, late)
	b.Put(1)
	b.End(changefeed.ErrClosed)
	_, err = b.Next(ctx)
	require.ErrorIs(t, err, changefeed.ErrClosed)
}

// TestNextContext: a context that is done takes nothing away.
func TestNextContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := Queue[int](2, errors.New("late"))
	b.Put(1)
	_, err := b.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	v, err := b.Next(context.Background())
	require.NoError(t, err)
	require.Equal(t, 1, v)
}
