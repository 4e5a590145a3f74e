package filelog

import "go.etcd.io/raft/v3/raftpb"

// Appender writes a log for a peer, and puts off what need not be written by itself: a commit
// index alone goes with the next write, or the last one ([Appender.Finish]). A follower is told
// of each commit index, and answers: that must not cost another write and its sync. It belongs to
// one goroutine, beside which nobody else writes the log. What is committed by an index that is put
// off is not replaced, as with [Log.Guard].
type Appender struct {
	log *Log
	off *raftpb.HardState // put off
}

// NewAppender returns one that writes log.
func NewAppender(log *Log) *Appender { return &Appender{log: log} }

// Append is as [Log.Append], but that a hard state may only be written with a later batch: one
// that has the term and the vote that the log has, or that need not be durable yet. When a batch
// with Sync is appended, what was promised before it is durable.
func (a *Appender) Append(b Batch) error {
	if b.HardState == nil {
		b.HardState = a.off
	}
	if len(b.Entries) == 0 && (!b.Sync || a.promised(b.HardState)) {
		a.off = b.HardState
		a.log.Guard(a.off.GetCommit())
		return a.log.Append(Batch{Sync: b.Sync}) // of what was written before
	}
	a.off = nil
	return a.log.Append(b)
}

// promised tells whether the log has the term and the vote already.
func (a *Appender) promised(hs *raftpb.HardState) bool {
	has := a.log.HardState()
	return hs == nil || has != nil && hs.GetTerm() == has.GetTerm() && hs.GetVote() == has.GetVote()
}

// Room is as [Log.Room].
func (a *Appender) Room() int64 { return a.log.Room() }

// Reserve is as [Log.Reserve].
func (a *Appender) Reserve() error { return a.log.Reserve() }

// Reset is as [Log.Reset]. What was put off is older than the snapshot.
func (a *Appender) Reset(index, term uint64) error {
	a.off = nil
	return a.log.Reset(index, term)
}

// Compact is as [Log.Compact].
func (a *Appender) Compact(index uint64) error { return a.log.Compact(index) }

// Finish writes what was put off. It is durable when the log is closed.
func (a *Appender) Finish() error {
	if a.off == nil {
		return nil
	}
	b := Batch{HardState: a.off}
	a.off = nil
	return a.log.Append(b)
}
