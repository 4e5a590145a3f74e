package raftlog

import (
	"io"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// StateMachine applies the updates. All its methods are called by one goroutine, one at a
// time. While a method runs, no further updates are applied at this peer, but the node does
// not wait otherwise. Methods must not call methods of the node that block, such as Close,
// Propose or Sync. If a method returns an error, the node stops, because a state machine
// that has missed an update is not a replica any more.
type StateMachine interface {
	// LastApplied returns the index of the last entry that the state includes. The index
	// must be stored with the state and updated atomically with it: later entries are
	// applied again after a restart. LastApplied is called once, by Open. A state machine
	// in memory returns 0, and is restored from the newest snapshot and the log.
	LastApplied() (uint64, error)
	// Apply applies entries, which are of kind State, in order. After Apply, LastApplied must return through,
	// which is at least the index of the last entry. Duplicate updates, which repeat an ID, are not passed to
	// Apply.
	Apply(entries []api.Entry, through uint64) error
	// Snapshot captures the current state. WriteTo is called at most once, from another
	// goroutine, while later entries are applied; it must write the state as of the call of
	// Snapshot. If the returned value implements io.Closer, Close is called when the value
	// is not needed any more.
	Snapshot() (io.WriterTo, error)
	// Restore replaces the state by data that Snapshot has written, at this or another peer. After Restore,
	// LastApplied must return index.
	Restore(index uint64, r io.Reader) error
}

// noStateMachine is the state machine of a node whose Config has none. It ignores updates. It is also the type
// of its empty snapshots.
type noStateMachine struct{}

func (noStateMachine) LastApplied() (uint64, error)     { return 0, nil }
func (noStateMachine) Apply([]api.Entry, uint64) error  { return nil }
func (noStateMachine) Snapshot() (io.WriterTo, error)   { return noStateMachine{}, nil }
func (noStateMachine) WriteTo(io.Writer) (int64, error) { return 0, nil }
func (noStateMachine) Restore(uint64, io.Reader) error  { return nil }
