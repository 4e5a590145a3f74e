package notice

import (
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
