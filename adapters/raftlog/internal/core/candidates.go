package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// candidates are the candidates of this process. The process repeats its requests to the leader until the
// log's queues contain exactly these candidates of this peer. Any other candidate of this peer in a queue
// belongs to an earlier process, or has resigned, so the process requests its removal. Only elections that
// have changed are compared.
type candidates struct {
	wanted       map[string]map[string]string // the names of the candidates to queue, by election and candidate ID
	unconfirmed  map[candidateKey]struct{}    // the candidates that must still be compared with the log
	tokens       map[candidateKey]uint64      // the fencing tokens passed to ResignLeader, until the log agrees
	reconciledAt time.Duration
	due          bool // whether reconcileCandidates must send requests now, and not only with the next heartbeat
}

type candidateKey struct{ election, candidate string }

func newCandidates() candidates {
	return candidates{wanted: map[string]map[string]string{}, unconfirmed: map[candidateKey]struct{}{}, tokens: map[candidateKey]uint64{}}
}

// AddCandidate keeps a candidate in the queue of an election until RemoveCandidate is called. If the
// leader of the log removes the candidate from the queue, the candidate joins again. IDs of candidates
// must not be reused.
func (c *Core) AddCandidate(election, candidate, name string) {
	s := &c.candidates
	if s.wanted[election] == nil {
		s.wanted[election] = map[string]string{}
	}
	s.wanted[election][candidate] = name
	s.unconfirmed[candidateKey{election, candidate}], s.due = struct{}{}, true
}

// RemoveCandidate requests that a candidate leaves the queue of its election. The candidate has left
// when [Core.Replica] does not contain it any more.
func (c *Core) RemoveCandidate(election, candidate string) {
	s := &c.candidates
	if delete(s.wanted[election], candidate); len(s.wanted[election]) == 0 {
		delete(s.wanted, election)
	}
	s.unconfirmed[candidateKey{election, candidate}], s.due = struct{}{}, true
}

// ResignLeader removes a candidate like RemoveCandidate, after its leadership with the given token has
// ended. The next head of the queue learns from the log that the candidate has resigned.
func (c *Core) ResignLeader(election, candidate string, token uint64) {
	c.candidates.tokens[candidateKey{election, candidate}] = token
	c.RemoveCandidate(election, candidate)
}

// markElection marks the candidates of this peer in one election, which has changed, so that
// reconcileCandidates compares them with the log.
func (s *candidates) markElection(c *Core, election string) {
	for candidate := range s.wanted[election] {
		s.unconfirmed[candidateKey{election, candidate}] = struct{}{}
	}
	for _, candidate := range c.replica.Elections.Get(election).Candidates {
		if candidate.Peer == c.self {
			s.unconfirmed[candidateKey{election, candidate.ID}] = struct{}{}
		}
	}
}

// markAll marks the candidates of this peer in all elections, so that reconcileCandidates compares them with
// the log.
func (s *candidates) markAll(c *Core) {
	for election := range s.wanted {
		s.markElection(c, election)
	}
	for _, election := range c.replica.Elections.OfPeer(c.self) {
		s.markElection(c, election)
	}
}

// reconcileCandidates requests from the leader that candidates of this peer join or leave their queues,
// until the log agrees with the wanted candidates: immediately after AddCandidate and RemoveCandidate,
// and with every heartbeat.
func (s *candidates) reconcileCandidates(c *Core, now time.Duration) {
	if !s.due && now-s.reconciledAt < c.cfg.Heartbeat || c.lead == raft.None || c.state == raft.StateLeader && !c.proposals.ready {
		return
	}
	s.due, s.reconciledAt = false, now
	for _, k := range slices.SortedFunc(maps.Keys(s.unconfirmed), compareKeys) {
		e := c.replica.Elections.Get(k.election)
		name, wanted := s.wanted[k.election][k.candidate]
		switch i := e.Position(k.candidate); {
		case wanted && i < 0 && !e.Ended:
			s.requestOp(c, replica.Op{Do: replica.Join, Election: k.election, Candidate: k.candidate, Name: name, Peer: c.self})
		case !wanted && i >= 0 && e.Candidates[i].Peer == c.self:
			s.requestOp(c, replica.Op{Do: replica.Leave, Election: k.election, Candidate: k.candidate, Through: s.tokens[k]})
		default:
			delete(s.unconfirmed, k)
			if !wanted {
				delete(s.tokens, k)
			}
		}
	}
}

func (s *candidates) requestOp(c *Core, op replica.Op) {
	c.Propose(Request{Kind: api.KindControl, ID: c.newRequestID(), Op: op, Forward: true})
}

func compareKeys(a, b candidateKey) int {
	return cmp.Or(strings.Compare(a.election, b.election), strings.Compare(a.candidate, b.candidate))
}
