package changefeed_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// TestTokensAfterLoss: tokens increase through every loss of the record: with a candidate that
// remembers the last token, without one, and after the end of the election.
func TestTokensAfterLoss(t *testing.T) {
	inBubble(t, func(a *arena) {
		last := int64(0)
		greater := func(what string) {
			a.Helper()
			token := a.leader().Current().Leadership.Token()
			require.Greater(a, token, last, what)
			last = token
		}
		one := a.join("one")
		greater("at first")
		a.table.Lose("election")
		synctest.Wait()
		greater("after a loss with a survivor")
		require.NoError(a, one.Resign())
		a.table.Lose("election")
		two := a.join("two")
		greater("after a loss without one")
		require.NoError(a, two.Resign())
		a.table.Lose("election")
		require.NoError(a, changefeed.DeleteElection(a.table.Store("election"))) // creates the record, ended
		require.NoError(a, changefeed.RestartElection(a.table.Store("election")))
		three := a.join("three")
		greater("after a loss, the end and a restart")
		require.NoError(a, three.EndElection())
		require.NoError(a, changefeed.RestartElection(a.table.Store("election")))
		a.join("four")
		greater("after another restart")
	})
}

// TestTokensOfRestart: the record that RestartElection writes has the wall clock's number, too:
// the one before it may have been lost and created by a program whose clock was behind.
func TestTokensOfRestart(t *testing.T) {
	inBubble(t, func(a *arena) {
		s := a.table.Store("election")
		ended := changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second, Term: 5, Ended: true}
		require.NoError(a, s.Create(a.Context(), ended))
		require.NoError(a, changefeed.RestartElection(s))
		require.EqualValues(a, time.Now().UnixMilli(), a.record().Term)
	})
}

// TestTermsAreBounded: a record with a term that not all stores keep is refused, and one that
// leaves no greater term ends candidacies. Neither is written.
func TestTermsAreBounded(t *testing.T) {
	inBubble(t, func(a *arena) {
		for _, term := range []uint64{protocol.MaxTerm + 1, math.MaxInt64, math.MaxUint64} {
			s := memory.NewTable().Store("election")
			require.NoError(a, s.Create(a.Context(), changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second, Term: term}))
			_, err := changefeed.NewElection(s)
			require.ErrorIs(a, err, changefeed.ErrUnsuitable)
		}
		last := changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second, Term: protocol.MaxTerm}
		require.NoError(a, a.table.Store("election").Create(a.Context(), last))
		p := a.join("p")
		err := <-p.ended
		require.ErrorIs(a, err, changefeed.ErrUnsuitable)
		require.ErrorContains(a, err, "is the last")
		require.False(a, errors.Is(err, leaderelection.ErrElectionOver))
		require.Equal(a, last.Seq, a.record().Seq, "it was written")
	})
}
