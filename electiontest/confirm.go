package electiontest

import (
	"errors"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// Confirm calls Resign or EndElection of a candidate until the backend has confirmed the end,
// for a minute at most:
//
//	electiontest.Confirm(t, candidate.Resign)
//
// A test that requires the first call to return nil fails if the backend takes longer than two
// seconds, which happens on busy machines. Confirm reports any error other than
// [leaderelection.ErrUnconfirmed], or an end that is not confirmed in time, with t.Errorf.
func Confirm(t testing.TB, end func() error) {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for {
		err := end()
		if err == nil {
			return
		}
		if !errors.Is(err, leaderelection.ErrUnconfirmed) || time.Now().After(limit) {
			t.Errorf("not confirmed: %v", err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
