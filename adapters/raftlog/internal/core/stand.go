package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// standing are the candidates of this process: those that are to stand in line. What the log
// says is brought into line with it, by asking the leader again and again: a candidate of
// this peer that is not one of these is of a process before, or has resigned, and leaves.
type standing struct {
	want map[place]string // and its name
	at   time.Duration    // the last look
	due  bool
}

type place struct{ election, candidate string }

// Stand has a candidate stand in an election's line, until Withdraw: again, if it is taken
// out. Candidate IDs are never used twice.
func (c *Core) Stand(election, candidate, name string) {
	c.stand.want[place{election, candidate}] = name
	c.stand.due = true
}

// Withdraw takes a candidate out of the line. [Core.Tables] tells when it has left.
func (c *Core) Withdraw(election, candidate string) {
	delete(c.stand.want, place{election, candidate})
	c.stand.due = true
}

// reconcile asks the leader for what is not as it should be: at once after a change, and
// every heartbeat.
func (s *standing) reconcile(c *Core, now time.Duration) {
	if !s.due && now-s.at < c.cfg.Heartbeat || c.lead == raft.None || c.state == raft.StateLeader && !c.props.ready {
		return
	}
	s.due, s.at = false, now
	for _, p := range slices.SortedFunc(maps.Keys(s.want), comparePlaces) {
		if l := c.tables.Lines[p.election]; !l.Ended && l.Place(p.candidate) < 0 {
			s.ask(c, entry.Op{Do: entry.Join, Election: p.election, Candidate: p.candidate, Name: s.want[p], Peer: c.self})
		}
	}
	for _, election := range slices.Sorted(maps.Keys(c.tables.Lines)) {
		for _, candidate := range c.tables.Lines[election].Candidates {
			if _, wanted := s.want[place{election, candidate.ID}]; candidate.Peer == c.self && !wanted {
				s.ask(c, entry.Op{Do: entry.Leave, Election: election, Candidate: candidate.ID})
			}
		}
	}
}

func (s *standing) ask(c *Core, op entry.Op) {
	c.Propose(Request{Kind: api.Control, ID: c.newID(), Op: op, Forward: true})
}

func comparePlaces(a, b place) int {
	if d := strings.Compare(a.election, b.election); d != 0 {
		return d
	}
	return strings.Compare(a.candidate, b.candidate)
}
