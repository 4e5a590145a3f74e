package storetest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// TestRunPartitions_AcceptsCorrectStore checks that RunPartitions does not fail the test of a correct
// store.
func TestRunPartitions_AcceptsCorrectStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, seed := memory.NewTable(), uint64(0)
		connect := func(t testing.TB) Client {
			seed++
			faulty := NewFaulty(table.Store("election"), seed)
			t.Cleanup(func() { _ = faulty.Close() })
			heal := func() {}
			return Client{Store: faulty, Cut: func() { heal = faulty.Cut() }, Heal: func() { heal() }}
		}
		RunPartitions(t, connect, func() {})
	})
}

// TestCheckTenures_FindsOverlaps checks that checkTenures, which RunPartitions calls, returns a problem if
// leaders act at the same time, or if tokens do not increase.
func TestCheckTenures_FindsOverlaps(t *testing.T) {
	first, second := tenure{0, 5, 1, 10}, tenure{1, 6, 11, 20}
	require.Empty(t, checkTenures([]tenure{second, first}, 2))
	require.Len(t, checkTenures([]tenure{first, second}, 3), 1, "a leadership is missing")
	require.Len(t, checkTenures([]tenure{first, {1, 6, 10, 20}}, 2), 1, "the leaderships overlap")
	require.Len(t, checkTenures([]tenure{first, {1, 5, 11, 20}}, 2), 1, "the token is repeated")
}
