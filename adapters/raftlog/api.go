package raftlog

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"

// What peers, and package client, tell: see there.
type (
	// Peer is a member of the cluster, or one that is to be.
	Peer = api.Peer
	// Membership is who the peers are.
	Membership = api.Membership
	// Info is how things stand at one peer.
	Info = api.Info
	// Entry is one entry of the log, committed.
	Entry = api.Entry
	// Kind is what an entry is for.
	Kind = api.Kind
	// NotLeaderError is the error of a peer that does not lead; it is [ErrNotLeader].
	NotLeaderError = api.NotLeaderError
	// SnapshotStream is a snapshot on its way. Whoever gets it closes its Data.
	SnapshotStream = api.SnapshotStream
)

// The kinds of entries.
const (
	// State is an update that somebody has proposed.
	State = api.State
	// Configuration changes who the peers are.
	Configuration = api.Config
	// Checkpoint begins a leader's term, and commits what was not committed before.
	Checkpoint = api.Checkpoint
	// Control is what peers tell each other by the log: who stands in which election.
	Control = api.Control
)

// The errors, for errors.Is.
var (
	// ErrNotLeader: no leader is known, or the peer that was asked does not lead; nothing
	// was done.
	ErrNotLeader = api.ErrNotLeader
	// ErrUnknownOutcome: it is not known whether the update was, or will be, applied.
	// Proposing it again with the same ID is safe, and tells.
	ErrUnknownOutcome = api.ErrUnknownOutcome
	// ErrStale: the ID is older than what peers remember, and they do not know it. Whether
	// the update was applied long ago cannot be told; it is not applied now.
	ErrStale = api.ErrStale
	// ErrFuture: the ID is more than 15 minutes ahead of the leader's clock.
	ErrFuture = api.ErrFuture
	// ErrRequestIDReused: the ID is known, from an update with other data.
	ErrRequestIDReused = api.ErrRequestIDReused
	// ErrBusy: the cluster has too much under way. Nothing was applied; try again.
	ErrBusy = api.ErrBusy
	// ErrTooManyIDs: as many IDs are fresh as Config.MaxRequestIDs allows. Nothing was
	// applied; fresh IDs are not forgotten to make room.
	ErrTooManyIDs = api.ErrTooManyIDs
	// ErrTooLarge: the data are larger than Config.MaxData.
	ErrTooLarge = api.ErrTooLarge
	// ErrNoSpace: the leader's disk has no space for updates; nothing was applied. Updates are
	// taken again, without a restart, when there is space.
	ErrNoSpace = api.ErrNoSpace
	// ErrInvalid: an argument cannot work; nothing was done.
	ErrInvalid = api.ErrInvalid
	// ErrChanging: another change of the peers is under way.
	ErrChanging = api.ErrChanging
	// ErrClosed: the node was closed.
	ErrClosed = api.ErrClosed
	// ErrFault: the node has stopped for good, by what the error wraps: its disk has failed,
	// its data are damaged, its state machine has returned an error, or the engine has panicked.
	ErrFault = api.ErrFault
	// ErrIdentity: the peer must not take part in the cluster with the data that it has: it was
	// founded separately, its directory or its log was lost, its directory is a copy or was put
	// back to an earlier state, the cluster was recovered without it, or it has applied other
	// entries than a majority of the peers. The error says which,
	// and what to do. It is ErrFault as well.
	ErrIdentity = api.ErrIdentity
	// ErrRefused: the other side is not of this cluster, or this peer was removed from it.
	ErrRefused = api.ErrRefused
)
