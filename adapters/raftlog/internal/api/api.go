// Package api is what peers and their clients say to each other and to their users: the
// types and errors that package raftlog and package client both export, without the engine
// that only peers have.
package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// MinSecret is the least length of a cluster's secret in bytes: shorter secrets can be guessed.
// Peers and clients check it.
const MinSecret = 16

// Kind is what an entry is for.
type Kind byte

// The kinds of entries.
const (
	// State is an update that somebody has proposed; its Data are theirs.
	State Kind = iota
	// Config changes who the peers are; its Data are the peers as JSON.
	Config
	// Checkpoint begins a leader's term, and commits what was not committed before. It has
	// no Data.
	Checkpoint
	// Control is what peers tell each other by the log: who stands in which election. It
	// has no Data for users.
	Control
)

var kinds = []string{"STATE", "CONFIG", "CHECKPOINT", "CONTROL"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("Kind(%d)", byte(k))
}

// Entry is one entry of the log, committed.
type Entry struct {
	Index uint64
	Term  uint64
	Kind  Kind
	// ID is the request's; zero for kinds that nobody has proposed.
	ID requestid.ID
	// Time is when the leader has taken it, by its clock; zero for a Checkpoint.
	Time time.Time
	// Data must not be modified.
	Data []byte
	// Skipped is set on a State entry that the log has but that changes nothing: its ID was
	// known already, or not fresh. State machines do not get it.
	Skipped bool
}

// Peer is a member of the cluster, or one that is to be.
type Peer struct {
	ID   string `json:"id" yaml:"id"`
	Addr string `json:"addr" yaml:"addr"` // host:port
}

// String is id@addr, or the address alone if the ID is not known.
func (p Peer) String() string {
	if p.ID == "" {
		return p.Addr
	}
	return p.ID + "@" + p.Addr
}

// Membership is who the peers are.
type Membership struct {
	// Index of the entry that has made it so.
	Index uint64 `json:"index"`
	// Voters elect the leader. While a change is under way these are the new ones.
	Voters []Peer `json:"voters"`
	// Outgoing are the voters before a change that is under way; empty otherwise.
	Outgoing []Peer `json:"outgoing,omitempty"`
	// Clients get the log and have no vote.
	Clients []Peer `json:"clients,omitempty"`
	// Removed are the IDs that were used once, and may not be used again.
	Removed []string `json:"removed,omitempty"`
}

// Info is how things stand at one peer.
type Info struct {
	Peer          Peer          `json:"peer"`
	Cluster       string        `json:"cluster"`
	Role          string        `json:"role"`   // client, follower, candidate, leader or removed
	Leader        Peer          `json:"leader"` // zero if unknown
	Lease         time.Duration `json:"lease"`  // for how long yet this peer's lease holds; 0 for none
	Term          uint64        `json:"term"`
	FirstIndex    uint64        `json:"firstIndex"`
	LastApplied   uint64        `json:"lastApplied"`
	CommitIndex   uint64        `json:"commitIndex"`
	LastIndex     uint64        `json:"lastIndex"`
	PruneIndex    uint64        `json:"pruneIndex"`
	SnapshotIndex uint64        `json:"snapshotIndex"`
	SnapshotSize  int64         `json:"snapshotSize"`
	RequestIDs    int           `json:"requestIDs"` // how many are remembered
	Fault         string        `json:"fault,omitempty"`
}

// The errors, for errors.Is.
var (
	// ErrNotLeader: the peer does not lead; nothing was done. NotLeaderError tells who does.
	ErrNotLeader = errors.New("raftlog: not the leader")
	// ErrUnknownOutcome: it is not known whether the update was, or will be, applied.
	// Proposing it again with the same ID is safe, and tells.
	ErrUnknownOutcome = errors.New("raftlog: outcome unknown")
	// ErrStale: the ID is older than what peers remember, and they do not know it. Whether
	// the update was applied long ago cannot be told; it is not applied now.
	ErrStale = errors.New("raftlog: request ID is not fresh")
	// ErrFuture: the ID is of a time to come, by the leaders' clocks. Nothing was applied.
	ErrFuture = errors.New("raftlog: request ID is of the future")
	// ErrRequestIDReused: the ID is known, from an update with other data.
	ErrRequestIDReused = errors.New("raftlog: request ID was used for other data")
	// ErrFenced: the leadership that was to guard the update is over; it was not applied.
	ErrFenced = errors.New("raftlog: leadership is over")
	// ErrBusy: the leader has too much under way, or hands over. Nothing was applied; try
	// again.
	ErrBusy = errors.New("raftlog: too busy")
	// ErrTooManyIDs: the log remembers as many IDs as it may. Nothing was applied; fresh IDs
	// are not forgotten to make room.
	ErrTooManyIDs = errors.New("raftlog: too many request IDs are fresh")
	// ErrTooLarge: the data are larger than the cluster takes.
	ErrTooLarge = errors.New("raftlog: data are too large")
	// ErrNoSpace: the leader's disk, or those of a majority, have no space. Nothing was applied.
	ErrNoSpace = errors.New("raftlog: no space on the disk")
	// ErrInvalid: an argument or an option cannot work; nothing was done.
	ErrInvalid = errors.New("raftlog: invalid")
	// ErrChanging: another change of the peers is under way.
	ErrChanging = errors.New("raftlog: another change of the peers is under way")
	// ErrCompacted: the entries are in a snapshot by now.
	ErrCompacted = errors.New("raftlog: entries were compacted")
	// ErrClosed: the node, or the client, was closed.
	ErrClosed = errors.New("raftlog: closed")
	// ErrFault: the node has stopped for good, by what it wraps: its disk has failed, its
	// data are damaged, or the engine has panicked.
	ErrFault = errors.New("raftlog: node has stopped by a fault")
	// ErrIdentity: the peer must not take part in the cluster with these data. It is ErrFault.
	ErrIdentity error = identityError{}
	// ErrRefused: the other side is not of this cluster: it has another secret, certificate
	// or cluster ID, or was removed.
	ErrRefused = errors.New("raftlog: refused")
)

// identityError is the type of ErrIdentity.
type identityError struct{}

func (identityError) Error() string { return "raftlog: this peer must not take part in the cluster" }

// Is tells that ErrIdentity is ErrFault.
func (identityError) Is(target error) bool { return target == ErrFault }

// NotLeaderError is the error of a peer that does not lead. It is ErrNotLeader.
type NotLeaderError struct {
	// Leader is who leads as far as the peer knows; zero if it knows of none.
	Leader Peer
}

func (e *NotLeaderError) Error() string {
	if e.Leader == (Peer{}) {
		return ErrNotLeader.Error() + ", and no leader is known"
	}
	return fmt.Sprintf("%s: %v leads", ErrNotLeader, e.Leader)
}

// Is tells that e is ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }
