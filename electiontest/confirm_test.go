package electiontest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// failingTB records whether a test has failed.
type failingTB struct {
	testing.TB
	failed bool
}

func (f *failingTB) Helper()               {}
func (f *failingTB) Errorf(string, ...any) { f.failed = true }

// TestConfirm_RetriesUntilConfirmed checks that Confirm repeats a call that returns ErrUnconfirmed, and fails
// the test after any other error.
func TestConfirm_RetriesUntilConfirmed(t *testing.T) {
	results := []error{leaderelection.ErrUnconfirmed, leaderelection.ErrUnconfirmed, nil}
	end := func() error {
		err := results[0]
		results = results[1:]
		return err
	}
	f := new(failingTB)
	electiontest.Confirm(f, end)
	require.False(t, f.failed)
	require.Empty(t, results, "it does not wait for the confirmation")

	results = []error{errors.New("rejected")}
	electiontest.Confirm(f, end)
	require.True(t, f.failed)
}
