package raftlog

import "io"

// StateMachine is what the updates are for. All its methods are called by one goroutine, one
// at a time; while one runs no further update is applied at this peer, and everything else
// goes on. None of them may wait for the node: not for Close, Propose or Sync. An error from
// any of them stops the node: a state machine that has missed an update is not a replica any
// more.
type StateMachine interface {
	// LastApplied is the index of the last entry that the state has, which has to be kept
	// with the state, and changed together with it: what is behind it is applied again after
	// a restart. It is called once, by Open. A state machine in memory returns 0, and is
	// restored from the newest snapshot and the log.
	LastApplied() (uint64, error)
	// Apply applies the entries, of kind State, in order; afterwards LastApplied is through,
	// which is the index of the last one or more. Entries that must not be applied, since
	// they repeat an ID, are left out.
	Apply(entries []Entry, through uint64) error
	// Snapshot returns the state of now. WriteTo is called once, or not at all, by another
	// goroutine, while entries are applied, and must write what was now. It can be followed
	// by a Close, if what is returned is an io.Closer.
	Snapshot() (io.WriterTo, error)
	// Restore replaces the state by what Snapshot has written, of this or another peer;
	// afterwards LastApplied is index.
	Restore(index uint64, r io.Reader) error
}

// nothing is the state machine of those that have none.
type nothing struct{}

func (nothing) LastApplied() (uint64, error)     { return 0, nil }
func (nothing) Apply([]Entry, uint64) error      { return nil }
func (nothing) Snapshot() (io.WriterTo, error)   { return nothing{}, nil }
func (nothing) WriteTo(io.Writer) (int64, error) { return 0, nil }
func (nothing) Restore(uint64, io.Reader) error  { return nil }
