package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// TestTransfer_MakesGivenCandidateLead checks that the candidate whose ID is passed to Transfer becomes
// leader immediately.
func TestTransfer_MakesGivenCandidateLead(t *testing.T) {
	runInBubble(t, func(h *harness) {
		for _, id := range []string{"one", "two", "three"} {
			h.join(id)
		}
		h.awaitLeader()
		for i := range 9 {
			next := h.candidates[(i/3+i)%3]
			begin := time.Now()
			h.transfer(next)
			require.Same(h, next, h.leader())
			require.LessOrEqual(h, time.Since(begin), time.Second/8, "the caller reads the record so often")
		}
		token := h.leader().token()
		h.transfer(h.leader())
		require.Equal(h, token, h.leader().token())
	})
}

// TestTransfer_ListeningLeaderStopsAtResign checks that the leadership of a program that listens to requests
// lasts until the program resigns, and that the target of the transfer leads immediately afterwards.
func TestTransfer_ListeningLeaderStopsAtResign(t *testing.T) {
	runInBubble(t, func(h *harness) {
		first := h.newCandidate("first")
		requested := first.ResignRequested()
		first.start()
		require.Same(h, first, h.awaitLeader())
		second := h.join("second")
		h.join("third")
		transferred := make(chan error, 1)
		go func() {
			transferred <- changefeed.Transfer(h.Context(), h.table.Store("election"), "second")
		}()
		<-requested
		l := first.Current().Leadership
		h.passTime(time.Minute)
		require.NoError(h, l.Err())
		require.Equal(h, "second", h.record().Nominee)
		require.NoError(h, first.Resign())
		at := time.Now()
		require.NoError(h, <-transferred)
		require.LessOrEqual(h, time.Since(at), time.Second/8, "the caller reads the record so often")
		require.Same(h, second, h.leader())
	})
}

// TestTransfer_RetriesTransientErrors checks that a transient error of the store does not end a transfer.
func TestTransfer_RetriesTransientErrors(t *testing.T) {
	runInBubble(t, func(h *harness) {
		h.joinAndLead("first")
		second := h.newCandidate("second")
		reads := 0
		store := &storeFuncs{Store: h.table.Store("election")}
		store.read = func(ctx context.Context) (changefeed.Record, error) {
			if reads++; reads > 1 && reads < 10 { // the first read, before the request is written, succeeds
				return changefeed.Record{}, errors.New("connection reset")
			}
			return store.Store.Read(ctx)
		}
		transferred := make(chan error, 1)
		go func() { transferred <- changefeed.Transfer(h.Context(), store, "second") }()
		synctest.Wait()
		second.start()
		require.NoError(h, <-transferred)
		require.GreaterOrEqual(h, reads, 10)
		require.Same(h, second, h.leader())
	})
}

// TestTransfer_ReportsFailureAndLeavesLeader checks that there is a leader after a transfer to a candidate that
// does not exist, that the caller learns the outcome, and that a later request replaces an earlier one.
func TestTransfer_ReportsFailureAndLeavesLeader(t *testing.T) {
	runInBubble(t, func(h *harness) {
		h.join("one")
		h.join("two")
		h.awaitLeader()
		store := h.table.Store("election")
		require.ErrorIs(h, changefeed.Transfer(h.Context(), store, "unknown"), changefeed.ErrNotTransferred)
		h.awaitLeader()

		results := make(chan error, 2)
		for _, id := range []string{"unknown", "another"} {
			go func() { results <- changefeed.Transfer(h.Context(), store, id) }()
			synctest.Wait()
		}
		err := <-results
		require.ErrorIs(h, err, changefeed.ErrNotTransferred)
		require.ErrorContains(h, err, `a transfer to "another" was requested`)
		require.ErrorIs(h, <-results, changefeed.ErrNotTransferred)
		h.awaitLeader()
	})
}

// TestTransfer_RemovesRequestIfContextIsDone checks that Transfer removes its request from the record when its
// context is done.
func TestTransfer_RemovesRequestIfContextIsDone(t *testing.T) {
	runInBubble(t, func(h *harness) {
		store := h.table.Store("election")
		_, err := changefeed.NewElection(store)
		require.NoError(h, err)
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute) // no candidate takes over, so Transfer waits for ctx
		defer cancel()
		require.ErrorIs(h, changefeed.Transfer(ctx, store, "one"), context.DeadlineExceeded)
		require.Empty(h, h.record().Nominee)
	})
}

// TestTransfer_AcceptsCandidateBeforeElectLeader checks that the target of a transfer, given by its random ID,
// may be a candidate that has not called ElectLeader yet.
func TestTransfer_AcceptsCandidateBeforeElectLeader(t *testing.T) {
	runInBubble(t, func(h *harness) {
		h.join("first")
		h.awaitLeader()
		second := h.newCandidateWithOptions()
		require.NotEmpty(h, second.ID())
		transferred := make(chan struct{})
		go func() {
			defer close(transferred)
			h.transfer(second)
		}()
		synctest.Wait()
		second.start()
		synctest.Wait()
		require.Same(h, second, h.leader())
		require.Equal(h, second.ID(), second.Current().CandidateID)
		<-transferred
	})
}

// TestTransfer_RejectsTooLongID checks that Transfer rejects an ID that is too long for stores or empty, without
// changing the record, and accepts the longest ID.
func TestTransfer_RejectsTooLongID(t *testing.T) {
	longest := strings.Repeat("x", changefeed.MaxID)
	store := memory.NewTable().Store("election")
	require.ErrorIs(t, changefeed.Transfer(t.Context(), store, longest), leaderelection.ErrNoElection)
	_, err := changefeed.NewElection(store, changefeed.WithID(longest))
	require.NoError(t, err)
	before, err := store.Read(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, changefeed.Transfer(ctx, store, longest+"x"), leaderelection.ErrInvalid)
	require.ErrorIs(t, changefeed.Transfer(ctx, store, ""), leaderelection.ErrInvalid)
	after, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.ErrorIs(t, changefeed.Transfer(ctx, store, longest), context.DeadlineExceeded)
	after, err = store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Seq+2, after.Seq)
}
