package connection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// TestGrant_KeepsFirstReason checks that a second call of End does not replace the reason of the first call.
func TestGrant_KeepsFirstReason(t *testing.T) {
	l := NewGrant(42, nil)
	require.Equal(t, int64(42), l.Token())
	require.NoError(t, l.Err())
	require.True(t, l.Deadline().IsZero())
	require.NoError(t, l.Context().Err())

	l.End(ErrSessionExpired)
	l.End(errors.New("later"))
	<-l.Context().Done()
	require.ErrorIs(t, l.Err(), ErrSessionExpired)
	require.ErrorIs(t, context.Cause(l.Context()), ErrSessionExpired)
}

// TestGrant_ErrDetectsExpiryWithoutTimer checks that Err compares the deadline with the clock: a process that
// resumes after a pause may call Err before any timer fires.
func TestGrant_ErrDetectsExpiryWithoutTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deadline := time.Now().Add(time.Second)
		l := NewGrant(1, func() time.Time { return deadline })
		time.Sleep(time.Second - 1)
		require.NoError(t, l.Err())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, l.Err(), ErrLeaseExpired)
		<-l.Context().Done()
		deadline = deadline.Add(time.Hour)
		require.ErrorIs(t, l.Err(), ErrLeaseExpired, "an expired grant stays expired")
		require.Equal(t, deadline.Add(-time.Hour), l.Deadline(), "the deadline does not change after the end")
	})
}

// TestGrant_DeadlineAdvancesUntilLeaseEnds checks that Deadline advances with each renewal of the lease, and keeps
// its last value after the lease has ended.
func TestGrant_DeadlineAdvancesUntilLeaseEnds(t *testing.T) {
	now := time.Now()
	proven := now.Add(time.Minute)
	l := NewGrant(1, func() time.Time { return proven })
	require.Equal(t, now.Add(time.Minute), l.Deadline())
	proven = now.Add(time.Hour)
	require.Equal(t, now.Add(time.Hour), l.Deadline())
	proven = time.Time{}
	require.Equal(t, now.Add(time.Hour), l.Deadline())
	l.End(ErrDeleted)
	require.Equal(t, now.Add(time.Hour), l.Deadline())
}

// TestExpired_ReportsExpiryByEitherClock checks that Expired returns true if the monotonic clock or only the wall
// clock has passed the deadline.
func TestExpired_ReportsExpiryByEitherClock(t *testing.T) {
	now := time.Now()
	require.False(t, limit.Expired(now.Add(time.Minute), now))
	require.True(t, limit.Expired(now, now))
	require.True(t, limit.Expired(now.Add(time.Minute), now.Round(0).Add(time.Hour)), "only the wall clock has passed the deadline")
}
