package electiontest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// failures records whether a test would fail.
type failures struct {
	testing.TB
	any bool
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.any = true }

func TestConfirm(t *testing.T) {
	results := []error{leaderelection.ErrUnconfirmed, leaderelection.ErrUnconfirmed, nil}
	end := func() error {
		err := results[0]
		results = results[1:]
		return err
	}
	f := new(failures)
	electiontest.Confirm(f, end)
	require.False(t, f.any)
	require.Empty(t, results, "it does not wait for the confirmation")

	results = []error{errors.New("rejected")}
	electiontest.Confirm(f, end)
	require.True(t, f.any)
}
