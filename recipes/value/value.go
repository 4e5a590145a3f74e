package value

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Value is a value of type T that is stored in a znode. Any number of Values, in any number
// of programs, can refer to the value at one path. A Value may be used by any number of
// goroutines.
type Value[T any] struct {
	node  *recipe.Setup
	codec recipes.Codec[T]

	mu     sync.Mutex
	latest state // the newest state that this Value has read or written
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

// state is one state of the znode: its version and its data.
type state struct {
	Version
	data []byte
	// err is the reason why the data could not be read, for which connection.IsUnreadable reports true, or nil.
	err error
	// session is the session in which the state was written, or the session of the connection before the state was
	// read: the server may have answered the read in a later session. It is 0 if the session is not known.
	session int64
}

// exists reports whether the znode exists in this state.
func (s state) exists() bool { return s.Version != (Version{}) }

// New returns the value at path. The first change creates the znode and its parents.
// New sends no request. Errors: [recipes.ErrInvalid].
func New[T any](conn *zk.Conn, path string, c recipes.Codec[T], opts ...Option) (*Value[T], error) {
	s, err := recipe.New(conn, path, opts, Option.ApplyValue)
	if err != nil {
		return nil, err
	}
	if c.Encode == nil || c.Decode == nil {
		return nil, fmt.Errorf("%w: a function of the codec is nil", recipes.ErrInvalid)
	}
	return &Value[T]{node: s, codec: c}, nil
}

// Get returns the value and its version, or the zero value and the zero Version if the
// znode does not exist. The result may not include the latest changes by other clients, but
// includes everything that this connection has read or written.
func (v *Value[T]) Get(ctx context.Context) (T, Version, error) {
	var value T
	s, err := v.read(ctx, false)
	if err == nil {
		value, err = v.decode(s)
	}
	return value, s.Version, v.node.Fail("get", v.node.Path, err)
}

// CompareAndSet replaces the value if its version is still old; the zero Version means that the
// znode must not exist. It returns the new version. Errors: [ErrChanged], [recipes.ErrTooLarge],
// [ErrVersion], and [recipes.ErrUnconfirmed] if the outcome is unknown. If old is not the latest
// version that this Value has read or written in the current session, it takes two more requests.
func (v *Value[T]) CompareAndSet(ctx context.Context, old Version, value T) (Version, error) {
	var written state
	data, err := v.encode(value)
	if err == nil {
		s := v.latestState()
		if s.Version != old {
			s = state{Version: old}
		}
		written, err = v.write(ctx, s, data)
	}
	return written.Version, v.node.Fail("compare and set", v.node.Path, err)
}

// Set replaces the value, whatever it is, and returns the new version. It also replaces data that
// this connection cannot read or that is not in the format of the codec. Errors:
// [recipes.ErrTooLarge], [ErrVersion], and [recipes.ErrUnconfirmed] if the outcome is unknown.
func (v *Value[T]) Set(ctx context.Context, value T) (Version, error) {
	_, version, err := v.update(ctx, func(state) (T, error) { return value, nil })
	return version, v.node.Fail("set", v.node.Path, err)
}

// Update replaces the value by the result of f, which is called with the current value, or with the zero value if the
// znode does not exist. Update returns the new value. f can be called several times: if the value has changed in the
// meantime, and if f has returned an error for a value that may be out of date. If f returns an error for the newest
// value, Update returns that error, wrapped. Other errors are those of [Value.Set], and [recipes.ErrFormat].
func (v *Value[T]) Update(ctx context.Context, f func(T) (T, error)) (T, error) {
	value, _, err := v.update(ctx, func(s state) (T, error) {
		value, err := v.decode(s)
		if err == nil {
			value, err = f(value)
		}
		return value, err
	})
	return value, v.node.Fail("update", v.node.Path, err)
}

// update replaces the value by the result of f, which is called with the current state.
func (v *Value[T]) update(ctx context.Context, f func(state) (T, error)) (value T, version Version, err error) {
	// Try the latest known state first: if no other client writes, it is the current state, and Update needs no
	// read.
	current := v.latestState()
	if !current.exists() {
		if current, err = v.read(ctx, false); err != nil {
			return value, version, err
		}
	}
	for isNewest := false; ; isNewest = true {
		var data []byte
		value, err = f(current)
		if err == nil {
			data, err = v.encode(value)
		}
		if err != nil {
			if isNewest {
				return value, version, err
			}
		} else if written, err := v.write(ctx, current, data); !errors.Is(err, ErrChanged) {
			return value, written.Version, err
		}
		if current, err = v.read(ctx, true); err != nil {
			return value, version, err
		}
	}
}

// encode returns the data for a value. The data does not share memory with the value, which the caller may
// change while the data is sent, or while it is part of the latest state.
func (v *Value[T]) encode(value T) ([]byte, error) {
	data, err := v.codec.Encode(value)
	return bytes.Clone(data), err
}

// decode returns the value of a state. The value does not share memory with the state.
func (v *Value[T]) decode(s state) (value T, err error) {
	switch {
	case !s.exists():
		return value, nil
	case s.err != nil:
		return value, s.err
	}
	return recipe.DecodeValue(v.codec.Decode, s.data)
}

// read reads the znode. If only its data cannot be read, the error is in state.err. If newest is set, the
// result includes everything that was committed before the call. Otherwise it includes what the connection
// has read or written. This needs no Sync in a new session: a server that begins it has applied all
// transactions up to its begin, unless localSessionsEnabled is set, which ZooKeeper disables by default.
func (v *Value[T]) read(ctx context.Context, newest bool) (state, error) {
	s, err := connection.Read(ctx, v.node.Conn, func() (state, error) {
		session := v.node.Conn.SessionID()
		if newest {
			if _, err := v.node.Conn.Sync(v.node.Path); err != nil {
				return state{}, err
			}
		}
		data, stat, err := connection.Get(v.node.Conn, v.node.Path)
		if err != nil && !connection.IsUnreadable(err) {
			return state{}, connection.IgnoreNoNode(err)
		}
		return state{Version: versionOf(stat), data: data, err: err, session: session}, nil
	})
	if err == nil {
		v.setLatest(s)
	}
	return s, err
}

// latestState returns the newest state that was read or written in the current session, or the zero
// state. States of earlier sessions may be newer than the current state, because the servers may have
// lost data since then.
func (v *Value[T]) latestState() state {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.latest.session != v.node.Conn.SessionID() {
		return state{}
	}
	return v.latest
}

// setLatest records s as the latest state, unless a newer state of the same session is known.
func (v *Value[T]) setLatest(s state) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !s.exists() || s.session != v.latest.session || s.mzxid >= v.latest.mzxid {
		v.latest = s
	}
}
