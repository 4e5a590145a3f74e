package counter

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/receipt"
	"github.com/go-leaderelection/leaderelection/internal/request"
)

// skip takes the znode, with its data as they are, from version -1 to 0. A set that
// expects version -1 is carried out at any version (CURATOR-688), so whoever does
// that holds an ephemeral znode that only one can create, and has seen the version
// while holding it.
func (v *Value[T]) skip(ctx context.Context, old snapshot) (snapshot, error) {
	guard, guid := path.Join(v.at.Path, "_skip"), []byte(rand.Text())
	for {
		held, err := v.hold(ctx, guard, guid)
		if err != nil {
			return snapshot{}, err
		}
		seen, err := v.read(ctx, true)
		switch {
		case err != nil:
			return snapshot{}, err
		case seen.Version != old.Version:
			if held {
				err = request.Retry(ctx, v.at.Conn, func() error { return v.at.Conn.Delete(guard, -1) })
			}
			return snapshot{}, errors.Join(ErrChanged, err)
		case !held:
			if err := request.Pause(ctx, 10*time.Millisecond); err != nil {
				return snapshot{}, err
			}
			continue
		}
		_, err = receipt.Do(ctx, v.at.Conn, v.at.Path, v.at.ACL,
			&zk.DeleteRequest{Path: guard, Version: -1},
			&zk.SetDataRequest{Path: v.at.Path, Data: seen.data, Version: -1})
		switch {
		case err == nil, errors.Is(err, receipt.ErrLost), errors.Is(err, zk.ErrNoNode):
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
		case errors.Is(err, receipt.ErrGone), errors.Is(err, receipt.ErrUnknown) && ctx.Err() == nil:
			continue
		}
		return snapshot{}, err
	}
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
		data, _, err := v.at.Conn.Get(guard)
		return data, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return string(data) == string(guid), err
}
