package core

import (
	"fmt"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// diskSpace is the free space on the disk of this peer. Equal disks fill at the same time, because the
// logs of all peers are equal. So a peer whose disk is full remains a member that votes:
//
//   - A leader rejects updates while there is still space for the entries that the cluster itself
//     needs: the entries of elections, of changes of the members, and of new leaders.
//   - If a peer cannot write entries at all (full), it sends nothing that depends on them, and ignores
//     further entries of the leader, as if the network had lost them. It still writes and sends votes;
//     see [Write.TakeVotes]. It reports to the leader that its disk is full.
//   - A leader rejects all requests while the disks of so many voters are full that no entry can be
//     committed.
type diskSpace struct {
	free      int64                    // the size of the updates that fit on the disk, in bytes
	full      bool                     // whether the disk was too full to write an entry
	unwritten int64                    // the bytes of entries that are passed to the disk and not durable yet
	reported  map[uint64]time.Duration // when each peer last reported that its disk is full
}

func newSpace() diskSpace {
	return diskSpace{free: math.MaxInt64, reported: map[uint64]time.Duration{}}
}

// SetFreeSpace tells the Core how many bytes of updates fit on the disk, which is math.MaxInt64 if no
// limit is known, and whether the disk was too full to write an entry.
func (c *Core) SetFreeSpace(bytes int64, full bool) { c.space.free, c.space.full = bytes, full }

// entryOverhead is the maximum number of bytes that an entry occupies on the disk in addition to its
// data.
const entryOverhead = 256

func sizeOnDisk(entries []*raftpb.Entry) (n int64) {
	for _, e := range entries {
		n += int64(len(e.GetData())) + entryOverhead
	}
	return n
}

func (s *diskSpace) addUnwritten(entries []*raftpb.Entry)    { s.unwritten += sizeOnDisk(entries) }
func (s *diskSpace) removeUnwritten(entries []*raftpb.Entry) { s.unwritten -= sizeOnDisk(entries) }

// checkUpdate returns an error if the leader's disk has no space for updates of the given size, in
// addition to the entries that are already passed to the disk.
func (s *diskSpace) checkUpdate(bytes int) error {
	if s.free != math.MaxInt64 && s.free-s.unwritten < int64(bytes)+entryOverhead {
		return fmt.Errorf("%w of the leader: free some, for example with raftlog compact", api.ErrNoSpace)
	}
	return nil
}

// checkMajority returns an error if the disks of so many voters are full that no entry can be
// committed.
func (s *diskSpace) checkMajority(c *Core) error {
	isFull := func(p replica.Peer) bool {
		at, reported := s.reported[p.Raft]
		return p.Raft == c.self && s.full || reported && c.now()-at < 2*c.cfg.Election
	}
	for _, voters := range [][]replica.Peer{c.replica.Members.Voters, c.replica.Members.Outgoing} {
		var ids []string
		for _, p := range voters {
			if isFull(p) {
				ids = append(ids, p.ID)
			}
		}
		if len(ids) > 0 && len(ids) >= len(voters)-len(voters)/2 {
			return fmt.Errorf("%w of peers %v, without which no majority is left: free some, for example with raftlog compact", api.ErrNoSpace, ids)
		}
	}
	return nil
}

// reportFull tells the leader that the disk of this peer is full, if it is. It is called with every
// heartbeat.
func (s *diskSpace) reportFull(c *Core) {
	if leader, known := c.peerOf(c.lead); s.full && known && c.lead != raft.None && c.lead != c.self {
		c.sendFrame(leader, frameFull, nil)
	}
}

// TakeVotes writes the hard state of w by the given function, without the commit index. It returns the
// frames that report the vote of this peer, which the caller must send then, and removes both from w.
// It is for a Write that waits for free space: a vote does not depend on the entries of the Write, but
// only on entries that this peer has acknowledged, which are durable. If the function returns an error,
// TakeVotes returns that error and changes nothing.
func (w *Write) TakeVotes(write func(*raftpb.HardState) error) ([]Frame, error) {
	if w.HardState != nil {
		hs := &raftpb.HardState{Term: new(w.HardState.GetTerm()), Vote: new(w.HardState.GetVote()), Commit: new(uint64(0))}
		if err := write(hs); err != nil {
			return nil, err
		}
		w.HardState = nil
	}
	var votes, rest []Frame
	for _, f := range w.Frames {
		if f.isVote {
			votes = append(votes, f)
		} else {
			rest = append(rest, f)
		}
	}
	w.Frames = rest
	return votes, nil
}
