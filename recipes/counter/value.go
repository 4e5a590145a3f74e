package counter

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Value is a value of type T that is stored in a znode. Any number of Values, in any number
// of programs, can refer to the value at one path. A Value may be used by any number of
// goroutines.
type Value[T any] struct {
	at    *setup.Setup
	codec Codec[T]

	mu    sync.Mutex
	known snapshot // as last seen
}

// Version identifies a state of a value. Different states of one value have different
// versions. The zero Version means that the znode does not exist.
type Version struct {
	czxid, mzxid int64
	version      int32
}

// Zxid returns the zxid of the transaction that created this state. It increases with every
// change during the life of an ensemble. It is 0 if the znode does not exist.
func (v Version) Zxid() int64 { return v.mzxid }

func versionOf(stat *zk.Stat) Version { return Version{stat.Czxid, stat.Mzxid, stat.Version} }

// snapshot is a state of the znode.
type snapshot struct {
	Version
	data []byte
}

// NewValue returns the value at path. The first change creates the znode and its parents.
// NewValue sends no request. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func NewValue[T any](conn *zk.Conn, path string, codec Codec[T], opts ...recipes.Option) (*Value[T], error) {
	s, err := setup.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	if codec.Encode == nil || codec.Decode == nil {
		return nil, fmt.Errorf("%w: a function of the codec is nil", recipes.ErrInvalidOption)
	}
	return &Value[T]{at: s, codec: codec}, nil
}

// writer returns the Writer that the values of the connection at this path and with this ACL share.
func (v *Value[T]) writer() *txn.Writer {
	return txn.Shared(txn.Config{Conn: v.at.Conn, Dir: v.at.Path, ACL: v.at.ACL, Log: v.at.Log})
}

// Get returns the value and its version, or the zero value and the zero Version if the
// znode does not exist. The result may not include the latest changes by other clients, but
// includes everything that this connection has read or written.
func (v *Value[T]) Get(ctx context.Context) (T, Version, error) {
	value, at, err := v.get(ctx)
	return value, at, setup.Fail("get", v.at.Path, err)
}

func (v *Value[T]) get(ctx context.Context) (value T, at Version, err error) {
	seen, err := v.read(ctx, false)
	if err != nil {
		return value, at, err
	}
	value, err = v.decode(seen)
	return value, seen.Version, err
}

// CompareAndSet replaces the value if its version is still old; the zero Version means that
// the znode must not exist. It returns the new version. Errors: [ErrChanged],
// [ErrTooLarge], and [recipes.ErrUnconfirmed] if the outcome is unknown.
func (v *Value[T]) CompareAndSet(ctx context.Context, old Version, value T) (Version, error) {
	data, err := v.codec.Encode(value)
	if err == nil {
		var made snapshot
		made, err = v.write(ctx, snapshot{Version: old}, data)
		return made.Version, setup.Fail("compare and set", v.at.Path, err)
	}
	return Version{}, setup.Fail("compare and set", v.at.Path, err)
}

// Set replaces the value, whatever it is, and returns the new version. Errors:
// [ErrTooLarge], and [recipes.ErrUnconfirmed] if the outcome is unknown.
func (v *Value[T]) Set(ctx context.Context, value T) (Version, error) {
	_, at, err := v.update(ctx, func(T) (T, error) { return value, nil }, true)
	return at, setup.Fail("set", v.at.Path, err)
}

// Update replaces the value by the result of f, which is called with the current value, or
// with the zero value if the znode does not exist. Update returns the new value. f can be
// called several times: if the value has changed in the meantime, and if f has returned an
// error for a value that may be out of date. If f returns an error for the newest value,
// Update returns that error, wrapped. Other errors are those of [Value.Set], and
// [ErrFormat].
func (v *Value[T]) Update(ctx context.Context, f func(T) (T, error)) (T, error) {
	value, _, err := v.update(ctx, f, false)
	return value, setup.Fail("update", v.at.Path, err)
}

// update is Update; blind does not look at what the znode has.
func (v *Value[T]) update(ctx context.Context, f func(T) (T, error), blind bool) (value T, at Version, err error) {
	// What was seen last is tried first: where nobody else writes it is right, and
	// saves the question.
	v.mu.Lock()
	seen := v.known
	v.mu.Unlock()
	if seen.Version == (Version{}) {
		if seen, err = v.read(ctx, false); err != nil {
			return value, at, err
		}
	}
	for fresh := false; ; fresh = true {
		var old T
		var data []byte
		if !blind {
			old, err = v.decode(seen)
		}
		if err == nil {
			value, err = f(old)
		}
		if err == nil {
			data, err = v.codec.Encode(value)
		}
		if err == nil {
			made, err := v.write(ctx, seen, data)
			if !errors.Is(err, ErrChanged) {
				return value, made.Version, err
			}
		} else if fresh {
			return value, at, err
		}
		if seen, err = v.read(ctx, true); err != nil {
			return value, at, err
		}
	}
}

func (v *Value[T]) decode(s snapshot) (value T, err error) {
	if s.Version == (Version{}) {
		return value, nil
	}
	if value, err = v.codec.Decode(s.data); err != nil {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return value, err
}

// read reads the znode; fresh does so after all that was committed before.
func (v *Value[T]) read(ctx context.Context, fresh bool) (snapshot, error) {
	s, err := request.Read(ctx, v.at.Conn, func() (snapshot, error) {
		if fresh {
			if _, err := v.at.Conn.Sync(v.at.Path); err != nil {
				return snapshot{}, err
			}
		}
		data, stat, err := request.Get(v.at.Conn, v.at.Path)
		if err != nil {
			return snapshot{}, err
		}
		return snapshot{versionOf(stat), data}, nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	if err == nil {
		v.note(s)
	}
	return s, err
}

// note keeps the newest state that was seen.
func (v *Value[T]) note(s snapshot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Version == (Version{}) || s.mzxid >= v.known.mzxid {
		v.known = s
	}
}

// maxData bounds a value with its path: a server would close the connection at a
// request that is longer than a megabyte, each time that it is sent.
const maxData = 0xfffff - 4096

// write replaces the state old by data, or returns ErrChanged.
func (v *Value[T]) write(ctx context.Context, old snapshot, data []byte) (snapshot, error) {
	if len(data)+len(v.at.Path) > maxData {
		return snapshot{}, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(data))
	}
	for {
		if old.Version != (Version{}) && old.version == -1 {
			var err error
			if old, err = v.skip(ctx, old); err != nil {
				return snapshot{}, err
			}
		}
		t := txn.Transaction{Alone: true}
		made := snapshot{Version{czxid: old.czxid, version: old.version + 1}, data}
		if old.Version == (Version{}) {
			made.version = 0
			t.Ops, t.CreatesDir = []any{&zk.CreateRequest{Path: v.at.Path, Data: data, Acl: v.at.ACL}}, true
		} else {
			var err error
			if t.Record, err = v.bind(ctx, old); err != nil {
				return snapshot{}, err
			}
			t.Ops = []any{&zk.SetDataRequest{Path: v.at.Path, Data: data, Version: old.version}}
		}
		o, err := v.writer().Run(ctx, t)
		switch {
		case err == nil && old.Version == (Version{}):
			made.czxid, made.mzxid = o.Zxid, o.Zxid
			v.note(made)
			return made, nil
		case err == nil:
			made.mzxid = o.Zxid
			czxid, err := v.czxid(ctx, o)
			if err != nil {
				return snapshot{}, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
			}
			if czxid != old.czxid {
				// It was deleted and created again, and has reached the same version.
				return snapshot{}, fmt.Errorf("%w: %s was deleted and created again", recipes.ErrUnconfirmed, v.at.Path)
			}
			v.note(made)
			return made, nil
		case errors.Is(err, recipes.ErrConnClosed):
			return snapshot{}, err
		case errors.Is(err, txn.ErrRecord):
			// The znode may be another one, which has reached the same version.
			seen, err := v.read(ctx, true)
			if err != nil {
				return snapshot{}, err
			}
			if seen.Version != old.Version {
				return snapshot{}, ErrChanged
			}
		case errors.Is(err, txn.ErrUnknown) && ctx.Err() == nil:
			if err := v.decide(ctx, old, data); err != nil {
				return snapshot{}, err
			}
		case errors.Is(err, txn.ErrUnknown):
			return snapshot{}, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
			return snapshot{}, ErrChanged
		case errors.Is(err, zk.ErrNoNode) && old.Version == (Version{}):
			if err := znode.Make(ctx, v.at.Conn, path.Dir(v.at.Path), v.at.ACL, false); err != nil {
				return snapshot{}, err
			}
		case errors.Is(err, zk.ErrNoNode):
			return snapshot{}, ErrChanged
		default:
			return snapshot{}, err
		}
	}
}

// czxid returns the czxid of the znode that a transaction has written.
func (v *Value[T]) czxid(ctx context.Context, o txn.Outcome) (int64, error) {
	if o.Responses != nil {
		return o.Responses[0].Stat.Czxid, nil
	}
	seen, err := v.read(ctx, true) // the reply was lost
	return seen.czxid, err
}

// bind returns the register with which the state old can be replaced. The znode cannot be deleted
// and created again while it contains the register. If the register is created now, bind returns
// ErrChanged if old is not the current state. A register that already exists may be newer than the
// state, so write compares the czxid afterwards.
func (v *Value[T]) bind(ctx context.Context, old snapshot) (register string, err error) {
	for {
		if register := v.writer().Record(); register != "" {
			return register, nil
		}
		o, err := v.writer().Run(ctx, txn.Transaction{})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return "", ErrChanged
		case errors.Is(err, recipes.ErrConnClosed):
			return "", err
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case errors.Is(err, txn.ErrUnknown):
			continue
		case err != nil:
			return "", err
		}
		seen, err := v.read(ctx, false)
		if err == nil && seen.Version != old.Version {
			err = ErrChanged
		}
		return o.Record, err
	}
}
