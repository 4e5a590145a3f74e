package recordjson

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeepsEverything(t *testing.T) {
	r := changefeed.Record{
		Epoch: "e", Leader: "<☂> \x00 \"", Session: "s", Nominee: "n",
		Term: math.MaxUint64, Seq: math.MaxUint64 - 1, TTL: time.Hour + 1, Ended: true,
	}
	data, err := Encode(r)
	require.NoError(t, err)
	got, err := Decode(data)
	require.NoError(t, err)
	require.Equal(t, r, got)
}

func TestRefusesWhatIsNoRecord(t *testing.T) {
	for _, data := range []string{
		"", "text", "{}", "null", "[1]", `{"epoch":"e","seq":1}`, `{"format":"changefeed/2","epoch":"e"}`,
		`{"format":"changefeed/1"}`, `{"format":"changefeed/1","epoch":"e","term":-1}`, `{"format":"changefeed/1","epoch":"e","ttl_ns":-1}`,
	} {
		_, err := Decode([]byte(data))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, data)
	}
}

func TestRefusesWhatWouldBeChanged(t *testing.T) {
	for _, r := range []changefeed.Record{
		{Epoch: "e", Leader: "\xff"}, {Epoch: "e", Nominee: "a\xc0"}, {Epoch: "e", Leader: strings.Repeat("a", maxSize)},
	} {
		_, err := Encode(r)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	}
}
