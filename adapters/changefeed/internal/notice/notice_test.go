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

// TestFollows: only a later state of the record that was told is believed.
func TestFollows(t *testing.T) {
	told := changefeed.Record{Epoch: "e", Seq: 5, Version: "v"}
	later := changefeed.Record{Epoch: "e", Seq: 6, Version: "w"}
	var l Last
	require.False(t, l.Follows(later), "nothing was told")
	l.Set(changefeed.Event{Missing: true})
	require.False(t, l.Follows(later), "there was no record")
	l.Set(changefeed.Event{Record: told})
	require.True(t, l.Follows(later))
	for _, r := range []changefeed.Record{told, {Epoch: "e", Seq: 4}, {Epoch: "another", Seq: 6}} {
		require.False(t, l.Follows(r), "%+v", r)
	}
	require.True(t, l.Same(changefeed.Event{Record: told}))
	require.False(t, l.Same(changefeed.Event{Record: later}))
	require.False(t, l.Same(changefeed.Event{Missing: true}))
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
