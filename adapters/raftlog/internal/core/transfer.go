package core

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// transfer is the state of a hand-over of the leadership of the log by this leader.
type transfer struct {
	until   time.Duration // when the leader stops looking for a successor
	entryID api.RequestID // the ID of the Transfer entry that announces the transfer, until it is applied
	prefer  uint64        // the number of the voter that becomes the leader if it is active, or raft.None
}

// HandOver transfers the leadership of the log to another voter, which transferTarget chooses, without
// an election timeout. Nothing happens if this peer is not the leader, or if no other voter replies to
// it within an election timeout. The leader first writes a Transfer entry into the log, which tells its
// successor to wait until leases have expired (expireFormerLeader).
func (c *Core) HandOver() {
	defer containPanic()
	c.handOver(raft.None)
}

// handOver requests a transfer of leadership within an election timeout, if possible to the voter with
// the number prefer.
func (c *Core) handOver(prefer uint64) {
	c.transfer.until, c.transfer.prefer = c.now()+c.cfg.Election, prefer
	c.transfer.proposeTransfer(c, c.now())
}

// proposeTransfer proposes a Transfer entry if a transfer was requested and there is a voter to
// transfer leadership to.
func (t *transfer) proposeTransfer(c *Core, now time.Duration) {
	if now >= t.until || !c.proposals.ready || !t.entryID.IsZero() || c.transferTarget() == raft.None {
		return
	}
	if id, ok := c.proposeControl(replica.Op{Do: replica.Transfer}); ok {
		t.entryID, t.until = id, 0
	}
}

// transferApplied starts the transfer in the engine after the Transfer entry of this leader was applied.
func (t *transfer) transferApplied(c *Core, o replica.Outcome) {
	if t.entryID.IsZero() || o.ID != t.entryID {
		return
	}
	t.entryID = api.RequestID{}
	if target := c.transferTarget(); target != raft.None {
		c.rn.TransferLeader(target)
	}
}

// maxTargetLag is the maximum number of entries that a preferred successor may lack. It receives these
// entries before it is elected.
const maxTargetLag = 64

// transferTarget returns the number of the voter to transfer leadership to, or raft.None. It considers
// the voters that have replied since the engine's last check, which is once in an election timeout, so
// that for a moment there may be none. It prefers, in this order, a voter
//
//   - that reaches a voter which this leader does not reach; see cutOff.
//   - whose wall clock is not wrong. A leader with a wrong clock would hand over immediately, possibly
//     to another voter with a wrong clock, and so on.
//   - that leads no election and lacks few entries. A new leader of the log gives up its lease
//     (updateRole), which interrupts the leaderships of its candidates.
//   - with the longest log.
func (c *Core) transferTarget() uint64 {
	type voter struct {
		id, match          uint64
		rightClock, noHead bool
	}
	var voters []voter
	skew, longest := c.ClockSkew(), uint64(0)
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		votes := slices.ContainsFunc(c.replica.Members.Voters, func(p replica.Peer) bool { return p.Raft == id })
		if id == c.self || !votes || !pr.RecentActive || pr.Match == 0 {
			return
		}
		ahead, known := c.peerClocks.peerAhead(c, id)
		voters = append(voters, voter{id, pr.Match, !known || (ahead-skew).Abs() <= maxSkew, !c.replica.Elections.HasHead(id)})
		longest = max(longest, pr.Match)
	})
	if len(voters) == 0 {
		return raft.None
	}
	rank := func(v voter) (r uint64) {
		if v.id == c.transfer.prefer {
			r += 4
		}
		if v.rightClock {
			r += 2
		}
		if v.noHead && v.match+maxTargetLag >= longest {
			r++
		}
		return r
	}
	return slices.MaxFunc(voters, func(a, b voter) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.match, b.match), cmp.Compare(a.id, b.id))
	}).id
}
