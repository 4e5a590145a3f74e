package raftlog

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

// What peers, and package client, tell: see there.
type (
	// Peer is a member of the cluster, or a peer that will become a member.
	Peer = api.Peer
	// Membership lists the peers of the cluster.
	Membership = api.Membership
	// Info is the status of one peer.
	Info = api.Info
	// Entry is a committed entry of the log.
	Entry = api.Entry
	// Kind is the purpose of an entry.
	Kind = api.Kind
	// NotLeaderError is the error of a peer that is not the leader of the log. It wraps
	// [ErrNotLeader].
	NotLeaderError = api.NotLeaderError
	// SnapshotStream is a snapshot that is being received. The receiver must close its
	// Data.
	SnapshotStream = api.SnapshotStream
)

// The kinds of entries.
const (
	// State is an update that was proposed.
	State = api.State
	// Configuration changes the membership.
	Configuration = api.Config
	// Checkpoint starts the term of a leader, and commits earlier entries.
	Checkpoint = api.Checkpoint
	// Control is a message between the peers, for instance about the candidates of
	// elections.
	Control = api.Control
)

// Errors returned by this package, to be tested with errors.Is.
var (
	// ErrNotLeader is returned if no leader of the log is known, or if the peer is not the
	// leader. Nothing was applied.
	ErrNotLeader = api.ErrNotLeader
	// ErrUnknownOutcome is returned if it is unknown whether the update was or will be
	// applied. It is safe to propose it again with the same ID, which determines the
	// outcome.
	ErrUnknownOutcome = api.ErrUnknownOutcome
	// ErrStale is returned if the peers do not remember the ID and it is older than the
	// deduplication window. It is unknown whether the update was applied long ago; it is
	// not applied now.
	ErrStale = api.ErrStale
	// ErrFuture is returned if the timestamp of the ID is more than 15 minutes ahead of the
	// leader's clock.
	ErrFuture = api.ErrFuture
	// ErrRequestIDReused is returned if the ID was used for an update with other data.
	ErrRequestIDReused = api.ErrRequestIDReused
	// ErrBusy is returned if the cluster is overloaded. Nothing was applied; the request
	// can be retried.
	ErrBusy = api.ErrBusy
	// ErrTooManyIDs is returned if Config.MaxRequestIDs IDs are within the deduplication
	// window. Nothing was applied. Such IDs are not discarded to make room.
	ErrTooManyIDs = api.ErrTooManyIDs
	// ErrTooLarge is returned if the data is larger than Config.MaxData.
	ErrTooLarge = api.ErrTooLarge
	// ErrNoSpace is returned if the leader's disk is full. Nothing was
	// applied. Updates are accepted again, without a restart, when there is space.
	ErrNoSpace = api.ErrNoSpace
	// ErrInvalid is returned if an argument is invalid. Nothing was changed.
	ErrInvalid = api.ErrInvalid
	// ErrChanging is returned if another change of the membership is in progress.
	ErrChanging = api.ErrChanging
	// ErrClosed is returned after the node was closed.
	ErrClosed = api.ErrClosed
	// ErrFault is returned if the node has stopped permanently. The error wraps the reason:
	// its disk has failed, its data is damaged, its state machine has returned an error, or
	// the engine has panicked.
	ErrFault = api.ErrFault
	// ErrIdentity is returned if the peer must not join the cluster with its data: it was
	// founded separately, its directory or its log was lost, its directory is a copy or was
	// restored from an earlier state, the cluster was recovered without it, or it has
	// applied other entries than a majority of the peers. The error contains the reason and
	// the remedy. It also wraps [ErrFault].
	ErrIdentity = api.ErrIdentity
	// ErrRefused is returned if the other side does not belong to this cluster, or if this
	// peer was removed from it.
	ErrRefused = api.ErrRefused
)
