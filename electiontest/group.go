package electiontest

import (
	"errors"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// TB contains the methods of [testing.TB] that the suite uses.
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Factory creates the group of one case: an election without candidates, on a backend
// that is independent of other cases. It must stop everything that it starts in
// t.Cleanup; all candidates have resigned by then. If it cannot create the group, it
// fails the test.
type Factory func(t TB) *Group

// Group is an election and the five programs that participate in it, numbered from 0. Its
// functions may be called from any goroutine.
type Group struct {
	// New creates a candidate in program i, without starting it. It is called again for
	// the same program after its last candidate has resigned. Resources such as a
	// connection belong to the program, which must keep them for its next candidate.
	New func(i int) (leaderelection.Candidate, error)

	// Crash permanently cuts program i off: from then on, no message passes between it
	// and the backend, and the backend is not notified. The program's candidates still
	// run in this process and must detect the loss themselves. If Crash is nil, the cases
	// that need it are skipped.
	Crash func(i int)

	// Cut does the same as Crash until heal is called. If Cut is nil, the cases that need
	// it are skipped.
	Cut func(i int) (heal func())

	// NoEnd indicates that the backend cannot end an election for all candidates.
	// EndElection must then return an error, and the candidacy must continue.
	NoEnd bool

	// InOrder indicates that candidates lead in the order in which they have joined, and that the second
	// one is notified that it is next ([leaderelection.Status].Next).
	InOrder bool

	// Patience is the longest time that the backend may take for an action. The longest
	// action is usually the election of a successor after the leader has crashed. The
	// default is 30 s.
	Patience time.Duration
}

// groupSize is the number of programs in a group.
const groupSize = 5

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
