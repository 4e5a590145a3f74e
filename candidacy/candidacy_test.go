package candidacy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
)

// TestNew_ReturnsWorkingCandidacy checks that New returns a Candidacy that runs an algorithm, begins a
// leadership and delivers the final status.
func TestNew_ReturnsWorkingCandidacy(t *testing.T) {
	c := candidacy.New(t.Context(), nil)
	failed := errors.New("failed")
	require.Equal(t, failed, c.Run(func(context.Context) error {
		l := c.Lead(3, nil)
		require.Same(t, l, c.Leadership())
		return failed
	}))
	require.Equal(t, failed, (<-c.Status()).Err)
}

// TestNewLeadership_KeepsFirstReason checks that Err returns the reason of the first call of the function that
// ends the leadership.
func TestNewLeadership_KeepsFirstReason(t *testing.T) {
	l, end := candidacy.NewLeadership(3, nil)
	require.EqualValues(t, 3, l.Token())
	require.NoError(t, l.Err())
	end(leaderelection.ErrResigned)
	end(leaderelection.ErrLeaseExpired)
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	<-l.Done()
}
