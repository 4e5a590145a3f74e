package filelog

import "go.etcd.io/raft/v3/raftpb"

// Appender writes a log for a peer, and defers hard states that need not be durable yet: it writes a hard
// state that only has a newer commit index together with the next batch, or in [Appender.Finish]. A follower
// receives a message with every new commit index and replies to it, and this must not require a separate write
// and sync. Entries up to the commit index of a deferred hard state cannot be replaced, as after [Log.Guard].
// Only one goroutine may use an Appender, and it must be the only writer of the log.
type Appender struct {
	log      *Log
	deferred *raftpb.HardState
}

// NewAppender returns an Appender that writes the given log.
func NewAppender(log *Log) *Appender { return &Appender{log: log} }

// Append appends a batch like [Log.Append], but defers the hard state if the log already contains the
// same term and vote, or if the batch need not be durable. After a batch with Sync, the terms and votes
// of all previous batches are durable.
func (a *Appender) Append(b Batch) error {
	if b.HardState == nil {
		b.HardState = a.deferred
	}
	if len(b.Entries) == 0 && (!b.Sync || a.hasVote(b.HardState)) {
		a.deferred = b.HardState
		a.log.Guard(a.deferred.GetCommit())
		return a.log.Append(Batch{Sync: b.Sync}) // write nothing, but make previous batches durable if b.Sync is true
	}
	a.deferred = nil
	return a.log.Append(b)
}

// hasVote reports whether the log already contains the term and the vote of a hard state.
func (a *Appender) hasVote(hs *raftpb.HardState) bool {
	has := a.log.HardState()
	return hs == nil || has != nil && hs.GetTerm() == has.GetTerm() && hs.GetVote() == has.GetVote()
}

// FreeSpace returns the result of [Log.FreeSpace] of the log.
func (a *Appender) FreeSpace() int64 { return a.log.FreeSpace() }

// Reserve calls [Log.Reserve], which allocates the next segment.
func (a *Appender) Reserve() error { return a.log.Reserve() }

// Reset replaces the log by a snapshot, like [Log.Reset], and discards the deferred hard state, whose commit
// index is older than the snapshot.
func (a *Appender) Reset(index, term uint64) error {
	a.deferred = nil
	return a.log.Reset(index, term)
}

// Compact removes the entries up to and including index from the log, like [Log.Compact].
func (a *Appender) Compact(index uint64) error { return a.log.Compact(index) }

// Finish writes the deferred hard state, which becomes durable when the log is closed.
func (a *Appender) Finish() error {
	if a.deferred == nil {
		return nil
	}
	b := Batch{HardState: a.deferred}
	a.deferred = nil
	return a.log.Append(b)
}
