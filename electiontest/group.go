package electiontest

import (
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// TB is the part of testing.TB that the suite needs.
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Factory makes the group of one case: an election in which nobody takes part, on a backend
// that has nothing to do with other cases. What it starts it ends by t.Cleanup; by then all
// candidates have resigned. It fails the test if it cannot.
type Factory func(t TB) *Group

// Group is an election, and the programs that take part in it: five, numbered from 0. The
// functions are called from any goroutine.
type Group struct {
	// New makes a candidate in program i, that has not started. It is called again for the
	// same program when its last candidate has resigned. Whatever it needs, such as a
	// connection, belongs to the program and is kept for the next one.
	New func(i int) (leaderelection.Candidate, error)

	// Crash loses program i for ever: from now on nothing that it sends reaches the backend,
	// nor the other way, and the backend is not told. Its candidates are objects in this
	// process all the same, which have to notice by themselves. Cases that need it are
	// skipped if it is nil.
	Crash func(i int)

	// Cut does the same until heal is called. Cases that need it are skipped if it is nil.
	Cut func(i int) (heal func())

	// NoEnd says that the backend cannot end an election for all. Then EndElection must
	// return an error, and the candidacy goes on.
	NoEnd bool

	// Patience is how long the backend may take for what it has to do by itself, of which
	// the succession of a leader that has crashed takes longest. The default is 30 s.
	Patience time.Duration
}

// programs is how many a group has.
const programs = 5
