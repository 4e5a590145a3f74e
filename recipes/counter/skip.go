package counter

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
)

// skip takes the znode, with its data as they are, from version -1 to 0. A set that
// expects version -1 is carried out at any version (CURATOR-688), so whoever does
// that holds an ephemeral znode that only one can create, and has seen the version
// while holding it.
//
// What was begun is finished when the context has ended, too: a guard that is left
// keeps everybody from writing.
func (v *Value[T]) skip(ctx context.Context, old snapshot) (snapshot, error) {
	select {
	case a := <-request.Start(func() (snapshot, error) { return v.skipped(ctx, old) }):
		return a.Value, a.Err
	case <-ctx.Done():
		return snapshot{}, context.Cause(ctx)
	}
}

// skipped is skip; waiting is only for the guards of others.
func (v *Value[T]) skipped(waiting context.Context, old snapshot) (made snapshot, err error) {
	ctx := context.WithoutCancel(waiting)
	guard, guid := path.Join(v.at.Path, "_skip"), []byte(rand.Text())
	held := false
	defer func() {
		if held && err != nil {
			err = errors.Join(err, v.release(ctx, guard, guid))
		}
	}()
	for {
		if held, err = v.hold(ctx, guard, guid); err != nil {
			return snapshot{}, err
		}
		seen, err := v.read(ctx, true)
		switch {
		case err != nil:
			return snapshot{}, err
		case seen.Version != old.Version:
			return snapshot{}, ErrChanged
		case !held:
			if err := request.Pause(waiting, 10*time.Millisecond); err != nil {
				return snapshot{}, err
			}
			continue
		}
		_, err = v.writer().Run(ctx, txn.Transaction{Alone: true, Ops: []any{
			&zk.DeleteRequest{Path: guard, Version: -1},
			&zk.SetDataRequest{Path: v.at.Path, Data: seen.data, Version: -1},
		}})
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode):
			held = false
			now, err := v.read(ctx, true)
			switch {
			case err != nil:
				return snapshot{}, err
			case now.czxid == seen.czxid && now.version == 0:
				return now, nil // with the same data: nobody has written since
			case now.Version != seen.Version:
				return snapshot{}, ErrChanged
			}
			continue // the guard went with its session
		case errors.Is(err, txn.ErrUnknown):
			continue
		}
		return snapshot{}, err
	}
}

// release deletes the guard if it is this call's.
func (v *Value[T]) release(ctx context.Context, guard string, guid []byte) error {
	err := request.Retry(ctx, v.at.Conn, func() error {
		data, _, err := request.Get(v.at.Conn, guard)
		if err != nil || string(data) != string(guid) {
			return err
		}
		return v.at.Conn.Delete(guard, -1)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// hold creates the guard, and reports whether it is this call's.
func (v *Value[T]) hold(ctx context.Context, guard string, guid []byte) (bool, error) {
	_, err := request.Read(ctx, v.at.Conn, func() (string, error) {
		return v.at.Conn.Create(guard, guid, zk.FlagEphemeral, v.at.ACL)
	})
	if !errors.Is(err, zk.ErrNodeExists) {
		return err == nil, err
	}
	data, err := request.Read(ctx, v.at.Conn, func() ([]byte, error) {
		data, _, err := request.Get(v.at.Conn, guard)
		return data, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return string(data) == string(guid), err
}
