package changefeed_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// TestElect fails if the named candidate does not become leader immediately, or there is no leader
// after a transfer to a candidate that does not exist.
func TestElect(t *testing.T) {
	runInBubble(t, func(h *harness) {
		for _, id := range []string{"one", "two", "three"} {
			h.join(id)
		}
		h.awaitLeader()
		for i := range 9 {
			caller, next := h.candidates[i%3], h.candidates[(i/3+i)%3]
			begin := time.Now()
			require.NoError(h, caller.Elect(h.Context(), next.id))
			synctest.Wait()
			require.Same(h, next, h.leader())
			require.Zero(h, time.Since(begin))
		}
		require.ErrorIs(h, h.candidates[0].Elect(h.Context(), ""), leaderelection.ErrInvalid)
		require.NoError(h, h.candidates[0].Elect(h.Context(), "unknown"))
		synctest.Wait()
		require.Nil(h, h.leader())
		h.awaitLeader() // when the reservation has expired
	})
}

// TestElect_Itself fails if a candidate cannot name itself, by its random ID, before its candidacy, as
// a follower, as the leader or after its candidacy.
func TestElect_Itself(t *testing.T) {
	runInBubble(t, func(h *harness) {
		first := h.newCandidateWithOptions()
		require.NotEmpty(h, first.id)
		first.start()
		require.Same(h, first, h.awaitLeader())
		second := h.newCandidateWithOptions()
		require.NoError(h, second.Elect(h.Context(), second.ID()), "before its candidacy")
		second.start()
		synctest.Wait()
		require.Same(h, second, h.leader())
		require.Equal(h, second.id, second.ID())
		require.Equal(h, second.id, second.Current().CandidateID)
		require.NoError(h, first.Elect(h.Context(), first.ID()), "as a follower")
		synctest.Wait()
		require.Same(h, first, h.leader())
		token := first.token()
		require.NoError(h, first.Elect(h.Context(), first.ID()), "as the leader")
		synctest.Wait()
		require.Equal(h, token, first.token())
		require.NoError(h, first.Resign())
		require.NoError(h, first.Elect(h.Context(), first.ID()), "after its candidacy")
		require.Same(h, second, h.awaitLeader())
	})
}

// TestElect_LongestID fails if Elect accepts an ID that is too long for stores, changes the record
// nevertheless, or rejects the longest ID.
func TestElect_LongestID(t *testing.T) {
	longest := strings.Repeat("x", changefeed.MaxID)
	store := memory.NewTable().Store("election")
	e, err := changefeed.NewElection(store, changefeed.WithID(longest))
	require.NoError(t, err)
	require.NoError(t, e.Elect(t.Context(), "other"))
	before, err := store.Read(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, e.Elect(t.Context(), longest+"x"), leaderelection.ErrInvalid)
	after, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, e.Elect(t.Context(), longest))
	after, err = store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, longest, after.Nominee)
}
