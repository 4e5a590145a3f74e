package core

import (
	"fmt"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// space is what the disk of this peer has room for. Equal disks fill at the same time, because the
// logs of all peers are equal. So a peer whose disk is full stays a member that votes:
//
//   - A leader rejects updates while there is still room for the entries that the cluster itself
//     needs: those of elections, of changes of the peers, and of new leaders.
//   - If entries cannot be written at all (full), nothing that depends on them is sent, and further
//     entries of the leader are ignored, as if they were lost. Votes are still written and sent, see
//     [Work.Vote]. The peer reports this to the leader.
//   - A leader rejects everything while so many voters are full that no entry can be committed.
type space struct {
	room      int64                    // bytes of updates that the disk has room for
	full      bool                     // an entry could not be written
	unwritten int64                    // bytes of entries given to the disk that are not stored
	reported  map[uint64]time.Duration // when each peer has last reported that it is full
}

func (s *space) init() { s.room, s.reported = math.MaxInt64, map[uint64]time.Duration{} }

// SetRoom sets how many bytes of updates fit on the disk, which is math.MaxInt64 if no limit is
// known, and whether the disk is full: an entry that it was given could not be written.
func (c *Core) SetRoom(bytes int64, full bool) { c.space.room, c.space.full = bytes, full }

// overhead is what an entry takes on the disk besides its data, at most.
const overhead = 256

func size(entries []*raftpb.Entry) (n int64) {
	for _, e := range entries {
		n += int64(len(e.GetData())) + overhead
	}
	return n
}

func (s *space) writes(entries []*raftpb.Entry) { s.unwritten += size(entries) }
func (s *space) wrote(entries []*raftpb.Entry)  { s.unwritten -= size(entries) }

// refusesUpdate returns an error if the leader's disk has no room for updates with that many bytes
// together, beside those that it has been given already.
func (s *space) refusesUpdate(bytes int) error {
	if s.room != math.MaxInt64 && s.room-s.unwritten < int64(bytes)+overhead {
		return fmt.Errorf("%w of the leader: free some, for example with raftlog compact", api.ErrNoSpace)
	}
	return nil
}

// refuses returns an error if no entry can be committed for lack of space.
func (s *space) refuses(c *Core) error {
	full := func(p entry.Peer) bool {
		at, reported := s.reported[p.Raft]
		return p.Raft == c.self && s.full || reported && c.now()-at < 2*c.cfg.Election
	}
	for _, voters := range [][]entry.Peer{c.tables.Members.Voters, c.tables.Members.Outgoing} {
		var ids []string
		for _, p := range voters {
			if full(p) {
				ids = append(ids, p.ID)
			}
		}
		if len(ids) > 0 && len(ids) >= len(voters)-len(voters)/2 {
			return fmt.Errorf("%w of peers %v, without which no majority is left: free some, for example with raftlog compact", api.ErrNoSpace, ids)
		}
	}
	return nil
}

// report tells the leader that this peer is full, at every heartbeat.
func (s *space) report(c *Core) {
	if leader, known := c.peerOf(c.lead); s.full && known && c.lead != raft.None && c.lead != c.self {
		c.sendFrame(leader, frameFull, nil)
	}
}

// Vote has the hard state of this work written, without its commit index, and returns the frames
// that say how this peer has voted, to be sent then. It is for a work that cannot be written for
// lack of space, or that follows one: a vote does not depend on entries, except for those that this
// peer has acknowledged, which are durable. The work does not contain them any longer. If write
// returns an error, Vote returns it and changes nothing.
func (w *Work) Vote(write func(*raftpb.HardState) error) ([]Send, error) {
	if w.HardState != nil {
		hs := &raftpb.HardState{Term: new(w.HardState.GetTerm()), Vote: new(w.HardState.GetVote()), Commit: new(uint64(0))}
		if err := write(hs); err != nil {
			return nil, err
		}
		w.HardState = nil
	}
	var votes, rest []Send
	for _, s := range w.Send {
		if s.vote {
			votes = append(votes, s)
		} else {
			rest = append(rest, s)
		}
	}
	w.Send = rest
	return votes, nil
}
