package value

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// maxData limits the length of the data and the path in a request. A server closes the connection
// when it receives a request that is longer than a megabyte.
const maxData = 0xfffff - 4096

// writer returns the Writer that all values of the connection with this path and this ACL share.
func (v *Value[T]) writer() *txn.Writer {
	return txn.Shared(txn.Config{Options: v.node.Options, Dir: v.node.Path})
}

// write replaces the state old by data. It returns ErrChanged if old is not the current state.
func (v *Value[T]) write(ctx context.Context, old state, data []byte) (state, error) {
	if err := v.node.CheckAccess(ctx, v.node.Path); err != nil {
		return state{}, err
	}
	for {
		t, err := v.newTransaction(ctx, old, data)
		if err != nil {
			return state{}, err
		}
		o, err := v.writer().Run(ctx, t)
		connClosed := errors.Is(err, recipes.ErrConnClosed)
		switch {
		case err == nil:
			return v.writtenState(ctx, old, data, o)
		case connection.IsCause(ctx, err) && !errors.Is(err, txn.ErrUnknown):
			return state{}, err
		case errors.Is(err, txn.ErrUnknown) && ctx.Err() == nil && !connClosed:
			// The outcome is unknown, because the record of the write was deleted, usually together with its
			// session. If resolveWrite finds that the write was not applied, the next iteration writes again.
			if err := v.resolveWrite(ctx, old, data); err != nil {
				return state{}, err
			}
		case errors.Is(err, txn.ErrUnknown):
			return state{}, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
		case errors.Is(err, txn.ErrRecord):
			// Compare the states, because the znode may have been deleted and created again with the same version.
			if err := v.checkCurrent(ctx, old, true); err != nil {
				return state{}, err
			}
		case errors.Is(err, zk.ErrNoNode) && !old.exists():
			if err := connection.MakeZnode(ctx, v.node.Conn, path.Dir(v.node.Path), v.node.ACL, false); err != nil {
				return state{}, err
			}
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
			return state{}, ErrChanged
		default:
			return state{}, err
		}
	}
}

// newTransaction returns the transaction that replaces the state old by data.
func (v *Value[T]) newTransaction(ctx context.Context, old state, data []byte) (txn.Transaction, error) {
	var ops []any
	switch {
	case !old.exists():
		ops = []any{&zk.CreateRequest{Path: v.node.Path, Data: data, Acl: v.node.ACL}}
	case old.version == anyVersion:
		err := v.checkCurrent(ctx, old, true)
		if err == nil {
			err = ErrVersion
		}
		return txn.Transaction{}, err
	default:
		ops = []any{&zk.SetDataRequest{Path: v.node.Path, Data: data, Version: old.version}}
	}
	if old.version == anyVersion-1 {
		// Add a second write to the transaction, which changes the version from -1 to 0.
		ops = append(ops, &zk.SetDataRequest{Path: v.node.Path, Data: data, Version: anyVersion})
	}
	if len(ops)*(len(data)+len(v.node.Path)) > maxData {
		return txn.Transaction{}, fmt.Errorf("%w: a value of %d bytes does not fit into a request", recipes.ErrTooLarge, len(data))
	}
	if !old.exists() {
		return txn.Transaction{Ops: ops, CreatesDir: true}, nil
	}
	record, err := v.prepareRecord(ctx, old)
	return txn.Transaction{Ops: ops, Record: record, Alone: true}, err
}

// anyVersion is the version -1. A write that expects -1 is applied whatever the version is, so a znode must
// not remain at this version.
const anyVersion = -1

// nextVersion returns the version of the znode after a write that expects version. Servers with
// ZOOKEEPER-4743 skip version -1: there, the two writes of a transaction at version -2 lead to version 1.
func nextVersion(version int32) int32 {
	if version == anyVersion-1 {
		return 0
	}
	return version + 1
}

// writtenState returns the state that a transaction has written in place of old. It returns an error if the czxid
// differs from that of old: a record that was created after old was read does not prove that the znode is still
// the same.
func (v *Value[T]) writtenState(ctx context.Context, old state, data []byte, o txn.Outcome) (state, error) {
	written := state{
		Version: Version{czxid: old.czxid, mzxid: o.Zxid, version: nextVersion(old.version)}, data: data, session: o.Session,
	}
	if !old.exists() {
		written.czxid, written.version = o.Zxid, 0
		v.setLatest(written)
		return written, nil
	}
	var current Version
	if n := len(o.Responses); n > 0 {
		current = versionOf(o.Responses[n-1].Stat)
	} else { // the reply was lost, so the version of the znode must be read
		s, err := v.read(ctx, true)
		if err != nil {
			return state{}, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
		}
		current = s.Version
	}
	if current.czxid != old.czxid {
		return state{}, fmt.Errorf("%w: %s was deleted and created again", recipes.ErrUnconfirmed, v.node.Path)
	}
	if current.mzxid == written.mzxid {
		written.Version = current
	}
	v.setLatest(written)
	return written, nil
}

// prepareRecord returns the path of a record for a transaction that replaces the state old. No client
// can delete and re-create the znode as long as the znode contains the record. If prepareRecord creates
// the record, or if the state may be of another session, after which the servers may have lost data,
// it returns ErrChanged if old is not the current state. A record that already exists may be newer
// than the state, so writtenState compares the czxid afterwards.
func (v *Value[T]) prepareRecord(ctx context.Context, old state) (path string, err error) {
	if path := v.writer().RecordOf(old.session); path != "" {
		return path, nil
	}
	o, err := v.writer().Confirm(ctx)
	switch {
	case connection.IsNoNode(ctx, err):
		return "", ErrChanged
	case err != nil:
		return "", err
	}
	return o.Record, v.checkCurrent(ctx, old, false)
}

// checkCurrent reads the znode, and returns ErrChanged if old is not its state. If newest is set, the read
// includes everything that was committed before the call.
func (v *Value[T]) checkCurrent(ctx context.Context, old state, newest bool) error {
	current, err := v.read(ctx, newest)
	if err == nil && current.Version != old.Version {
		err = ErrChanged
	}
	return err
}

// resolveWrite finds out whether a write was applied in a session that has expired. It returns nil
// if the write was not applied and old is still the current state, ErrChanged if the write was not
// applied and the state has changed, and recipes.ErrUnconfirmed if this write or another write may
// have led to the current state.
func (v *Value[T]) resolveWrite(ctx context.Context, old state, data []byte) error {
	current, err := v.read(ctx, true)
	isNext := current.version == nextVersion(old.version) && current.czxid == old.czxid
	if !old.exists() {
		isNext = current.version == 0 && current.exists()
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
	case current.Version == old.Version:
		return nil
	case isNext && current.err == nil && !bytes.Equal(current.data, data):
		return ErrChanged
	}
	return fmt.Errorf("%w: the session expired, and the current value does not show whether the write was applied", recipes.ErrUnconfirmed)
}
