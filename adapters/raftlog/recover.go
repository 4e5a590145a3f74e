package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// RecoverConfig configures [RecoverOffline]. Dir is required.
type RecoverConfig struct {
	// Dir is the directory of a peer that is not running.
	Dir string
	// Addr is the address, host:port, at which other peers will reach the peer. The default
	// is its previous address.
	Addr string
	// DryRun makes RecoverOffline return its result without changing anything.
	DryRun bool

	fs disk.FS // the disk that tests use instead of Dir
}

// Recovery is the result of [RecoverOffline].
type Recovery struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Peer is the only member of the recovered cluster.
	Peer api.Peer
	// Last and Term are the index and the term of the newest entry that the peer had. All
	// later entries that other peers have acknowledged are lost.
	Last, Term uint64
	// Committed is the index of the last entry that the peer's files show to be committed.
	// The entries after it, through Last, may never have been acknowledged; they are kept.
	Committed uint64
	// Removed are the IDs of the other peers, which are rejected if they return.
	Removed []string
}

// RecoverOffline makes a peer the only member of its cluster, after a majority of the
// voters was lost permanently. All entries of the peer become committed. Entries that the
// peer does not have are lost, even if they were acknowledged. The cluster gets a new
// identity, so that the other peers are rejected if they return; new peers join under new
// IDs. If several peers are left, recover the peer with the highest Term, and among these
// the one with the highest Last.
//
// RecoverOffline must not be called if a majority of the voters can be started again. It
// blocks until the change is on disk. If it fails, it may be called again.
//
// Errors: [api.ErrInvalid] if the directory is in use or is not that of a peer; [api.ErrIdentity]
// if its log is missing; [api.ErrFault] if files are damaged; errors of reading and writing.
func RecoverOffline(cfg RecoverConfig) (Recovery, error) {
	r := recovery{cfg: cfg, fs: cfg.fs}
	if r.fs == nil {
		r.fs = disk.OS(cfg.Dir)
	}
	err := r.runRecovery()
	if err = errors.Join(err, r.closeFiles()); err != nil {
		return Recovery{}, fmt.Errorf("raftlog: recover %s: %w", cfg.Dir, err)
	}
	return r.made, nil
}

// recovery is the state of a call of RecoverOffline.
type recovery struct {
	cfg   RecoverConfig
	fs    disk.FS
	owner identity.Owner
	state *replica.State
	files *filelog.Log
	lock  interface{ Close() error }
	made  Recovery
}

func (r *recovery) closeFiles() error {
	var errs []error
	if r.files != nil {
		errs = append(errs, r.files.Close())
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
	}
	return errors.Join(errs...)
}

// runRecovery locks the directory, reads its state, and makes the peer the only voter unless DryRun is set.
func (r *recovery) runRecovery() error {
	if r.cfg.Addr != "" {
		if _, _, err := net.SplitHostPort(r.cfg.Addr); err != nil {
			return fmt.Errorf("%w: Addr %q: %w", api.ErrInvalid, r.cfg.Addr, err)
		}
	}
	if err := r.lockDirectory(); err != nil {
		return err
	}
	meta, err := r.readSnapshot()
	if err != nil {
		return err
	}
	if err := r.applyLog(meta); err != nil {
		return err
	}
	self := replica.Numbered(r.owner.Cluster, api.Peer{ID: r.owner.Peer, Addr: r.cfg.Addr})
	members := &r.state.Members
	if self.Addr == "" {
		p, known := members.FindID(r.owner.Peer)
		if !known {
			return fmt.Errorf("%w: peer %s was not a member of the cluster: set Addr to its address", api.ErrInvalid, r.owner.Peer)
		}
		self.Addr = p.Addr
	}
	r.made.Cluster, r.made.Peer = r.owner.Cluster, api.Peer{ID: self.ID, Addr: self.Addr}
	for _, p := range members.All() {
		if p.ID != self.ID {
			r.made.Removed = append(r.made.Removed, p.ID)
		}
	}
	if r.cfg.DryRun {
		return nil
	}
	return r.writeRecovery(self)
}

// lockDirectory reads the owner of the directory, locks the directory, and returns an error unless the peer has
// been a member of the cluster and its log is present.
func (r *recovery) lockDirectory() (err error) {
	if r.owner, err = identity.ReadOwner(r.fs); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, identity.ErrFormat) {
			return fmt.Errorf("%w: not the directory of a peer: %w", api.ErrInvalid, err)
		}
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	lock, err := r.fs.Lock("lock")
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("%w: the directory is in use: stop peer %s first", api.ErrInvalid, r.owner.Peer)
	}
	if err != nil {
		return err
	}
	r.lock = lock
	if !r.owner.Complete {
		return fmt.Errorf("%w: peer %s was never a member of the cluster", api.ErrInvalid, r.owner.Peer)
	}
	wrong, err := r.owner.CheckLog(r.fs, logDir)
	if err == nil && wrong != "" {
		return identityErrorf("%s: recover another peer", wrong)
	}
	return err
}

func (r *recovery) readSnapshot() (snapshot.Meta, error) {
	s, err := snapshot.OpenFile(r.fs, snapshot.Name)
	if err != nil {
		return snapshot.Meta{}, fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	r.state, err = replica.Read(s.Tables())
	if err = errors.Join(err, s.Close()); err != nil {
		return snapshot.Meta{}, fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	return s.Meta(), nil
}

// readSize is the size of the entries that applyLog reads at a time, in bytes.
const readSize = 4 << 20

// applyLog opens the log, and applies all its entries to the replicated state.
func (r *recovery) applyLog(meta snapshot.Meta) (err error) {
	if r.files, err = filelog.Open(r.fs, logDir, filelog.Options{ReadOnly: r.cfg.DryRun}); err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	if err := checkContinues(r.files, meta); errors.Is(err, errOtherLog) {
		if !r.cfg.DryRun {
			if err := r.files.Reset(meta.Index, meta.Term); err != nil {
				return fmt.Errorf("%w: %w", api.ErrFault, err)
			}
		}
		r.made.Last, r.made.Term, r.made.Committed = meta.Index, meta.Term, meta.Index
		return nil
	} else if err != nil {
		return err
	}
	last, err := r.files.LastIndex()
	if err != nil {
		return err
	}
	for r.state.Index < last {
		entries, err := r.files.Entries(r.state.Index+1, last+1, readSize)
		if err != nil {
			return fmt.Errorf("%w: %w", api.ErrFault, err)
		}
		for _, e := range entries {
			if _, err := r.state.Apply(e); err != nil {
				return fmt.Errorf("%w: %w", api.ErrFault, err)
			}
		}
	}
	r.made.Last, r.made.Term = last, r.state.Term
	r.made.Committed = min(last, max(meta.Index, r.files.HardState().GetCommit()))
	return nil
}

// writeRecovery gives the directory a new cluster identity, and appends the entry that makes the peer the
// only member.
func (r *recovery) writeRecovery(self replica.Peer) error {
	// Change the identity before the entry is appended, because a log of the old cluster must not
	// contain that entry.
	r.owner.Former = append(r.owner.Former, r.owner.Founding)
	r.owner.Founding, r.owner.Founders = identity.Recovered(r.owner.Founding), ""
	if err := r.owner.Write(r.fs); err != nil {
		return err
	}
	data := replica.Config{Phase: replica.Recover, Peers: []replica.Peer{self}}.Encode()
	now := time.Now()
	header := replica.Header{
		Kind: api.KindConfig, ID: api.RequestIDFrom(now, rand.Uint64(), rand.Uint64()), Time: now, Sum: replica.Sum(data),
	}
	raw, err := proto.Marshal(&raftpb.ConfChangeV2{Context: replica.EncodeEntry(header, data)})
	if err != nil {
		return err
	}
	index, term := r.made.Last+1, max(r.made.Term, r.files.HardState().GetTerm())+1
	return r.files.Append(filelog.Batch{
		HardState: &raftpb.HardState{Term: &term, Vote: new(uint64), Commit: &index},
		Entries:   []*raftpb.Entry{{Index: &index, Term: &term, Type: raftpb.EntryConfChangeV2.Enum(), Data: raw}},
		Sync:      true,
	})
}

// errOtherLog is the error of checkContinues if the log does not contain the last entry of the snapshot,
// because the log is new, or because the process was stopped after it had installed the snapshot and before
// it had reset the log.
var errOtherLog = errors.New("the log does not match the snapshot")

// checkContinues returns nil if the log contains the last entry of the snapshot or begins directly after it,
// and errOtherLog if the log ends before this entry or has an entry of another term in its place. The error
// wraps ErrFault if entries between the snapshot and the log are missing.
func checkContinues(files *filelog.Log, meta snapshot.Meta) error {
	last, errLast := files.LastIndex()
	first, errFirst := files.FirstIndex()
	if err := cmp.Or(errLast, errFirst); err != nil {
		return err
	}
	switch {
	case first > meta.Index+1:
		return fmt.Errorf("%w: the log begins at entry %d and the snapshot ends at entry %d: the entries between them are missing", api.ErrFault, first, meta.Index)
	case last < meta.Index:
		return errOtherLog
	}
	term, err := files.Term(meta.Index)
	if err != nil {
		return fmt.Errorf("%w: term of entry %d: %w", api.ErrFault, meta.Index, err)
	}
	if term != meta.Term {
		return errOtherLog
	}
	return nil
}
