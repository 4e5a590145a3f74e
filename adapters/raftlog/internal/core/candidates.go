package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// standing are the candidates of this process: those that should be in the line of an election.
// The log is made to agree with that, by repeated requests to the leader: a candidate of this peer
// that is not one of these is of an earlier process, or has resigned, and leaves. Only candidates
// of which the line has changed are looked at.
type standing struct {
	want map[string]map[string]string // the candidates' names, by election and candidate
	open map[place]struct{}           // candidates of which the log may not agree with want
	at   time.Duration                // the last look
	due  bool
}

type place struct{ election, candidate string }

func (s *standing) init(c *Core) {
	s.want, s.open = map[string]map[string]string{}, map[place]struct{}{}
	s.replaced(c)
}

// Stand has a candidate stand in an election's line, until Withdraw: again, if it is taken
// out. Candidate IDs are never used twice.
func (c *Core) Stand(election, candidate, name string) {
	s := &c.stand
	if s.want[election] == nil {
		s.want[election] = map[string]string{}
	}
	s.want[election][candidate] = name
	s.open[place{election, candidate}], s.due = struct{}{}, true
}

// Withdraw takes a candidate out of the line. [Core.Tables] tells when it has left.
func (c *Core) Withdraw(election, candidate string) {
	s := &c.stand
	if delete(s.want[election], candidate); len(s.want[election]) == 0 {
		delete(s.want, election)
	}
	s.open[place{election, candidate}], s.due = struct{}{}, true
}

// changed is called when the line of an election has changed.
func (s *standing) changed(c *Core, election string) {
	for candidate := range s.want[election] {
		s.open[place{election, candidate}] = struct{}{}
	}
	for _, candidate := range c.tables.Elections.Get(election).Candidates {
		if candidate.Peer == c.self {
			s.open[place{election, candidate.ID}] = struct{}{}
		}
	}
}

// replaced is called when all lines may have changed.
func (s *standing) replaced(c *Core) {
	for election := range s.want {
		s.changed(c, election)
	}
	for _, election := range c.tables.Elections.OfPeer(c.self) {
		s.changed(c, election)
	}
}

// reconcile asks the leader for what is not as it should be: at once after a change, and
// every heartbeat.
func (s *standing) reconcile(c *Core, now time.Duration) {
	if !s.due && now-s.at < c.cfg.Heartbeat || c.lead == raft.None || c.state == raft.StateLeader && !c.props.ready {
		return
	}
	s.due, s.at = false, now
	for _, p := range slices.SortedFunc(maps.Keys(s.open), comparePlaces) {
		l := c.tables.Elections.Get(p.election)
		name, wanted := s.want[p.election][p.candidate]
		switch i := l.Position(p.candidate); {
		case wanted && i < 0 && !l.Ended:
			s.ask(c, entry.Op{Do: entry.Join, Election: p.election, Candidate: p.candidate, Name: name, Peer: c.self})
		case !wanted && i >= 0 && l.Candidates[i].Peer == c.self:
			s.ask(c, entry.Op{Do: entry.Leave, Election: p.election, Candidate: p.candidate})
		default:
			delete(s.open, p)
		}
	}
}

func (s *standing) ask(c *Core, op entry.Op) {
	c.Propose(Request{Kind: api.KindControl, ID: c.newID(), Op: op, Forward: true})
}

func comparePlaces(a, b place) int {
	if d := strings.Compare(a.election, b.election); d != 0 {
		return d
	}
	return strings.Compare(a.candidate, b.candidate)
}
