package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// acquire, share, downgrade and yield are the operations on a lock in a history: locking for writing, locking
// for reading, a downgrade, and a release or a loss.
type (
	acquire   struct{ token int64 }
	share     struct{ token int64 }
	downgrade struct {
		token   int64
		unknown bool // it is unknown whether the downgrade was applied
	}
	yield struct{ token int64 }
)

// lockState is the state of a lock: the token of its writer, or the keys of its readers.
type lockState struct {
	writer  int64
	readers string
	written int64 // the greatest token that a writer had
	read    int64 // the greatest token that a reader had
}

// readerKey returns the part of lockState.readers that represents the reader with a token.
func readerKey(token int64) string { return fmt.Sprintf(",%d,", token) }

// lockModel is the model of a read-write lock. Of holds that exclude each other, the later one has the
// greater token. A mutex is a lock without readers.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s := state.(lockState)
		switch in := input.(type) {
		case acquire:
			if s.writer != 0 || s.readers != "" || in.token <= s.written || in.token <= s.read {
				return false, s
			}
			s.writer, s.written = in.token, in.token
		case share:
			if s.writer != 0 || in.token <= s.written {
				return false, s
			}
			s.readers += readerKey(in.token)
			s.read = max(s.read, in.token)
		case downgrade:
			if s.writer != in.token {
				return in.unknown, s
			}
			s.writer, s.readers = 0, readerKey(in.token)
		case yield:
			switch {
			case s.writer == in.token:
				s.writer = 0
			case strings.Contains(s.readers, readerKey(in.token)):
				s.readers = strings.Replace(s.readers, readerKey(in.token), "", 1)
			default:
				return false, s
			}
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%T %v", input, input) },
}

// write and read are operations on the register to which holders write.
type (
	write struct {
		token, value int64
		unknown      bool // it is unknown whether the write was applied
	}
	read struct{ value int64 }
)

type registerState struct{ token, value int64 }

// registerModel is the model of a register that rejects tokens smaller than the greatest it has seen. A write
// with an unknown outcome may be applied late or never. The model treats a write that is never applied as a
// write after all other operations.
var registerModel = porcupine.Model{
	Init: func() any { return registerState{} },
	Step: func(state, input, _ any) (bool, any) {
		s := state.(registerState)
		switch in := input.(type) {
		case write:
			if in.token < s.token {
				return in.unknown, s
			}
			return true, registerState{in.token, in.value}
		case read:
			return in.value == s.value, s
		}
		return false, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%T %+v", input, input) },
}

// writeRegister writes a unique value in a transaction of the hold.
func (c *client) writeRegister(h *Hold) {
	value := c.now()
	_, err := h.Multi(&zk.SetDataRequest{Path: registerPath, Data: strconv.AppendInt(nil, value, 10), Version: -1})
	switch {
	case err == nil:
		c.recordOperation(registerPath, write{h.Token(), value, false}, value, c.now())
	case errors.Is(err, recipes.ErrUnconfirmed):
		c.recordOperation(registerPath, write{h.Token(), value, true}, value, never)
	case !errors.Is(err, recipes.ErrNotHeld):
		c.Violate("client %d: %v", c.id, err)
	}
}

// readRegister reads the newest value. The client does not have to hold the lock.
func (c *client) readRegister() {
	called := c.now()
	if _, err := c.conn.Sync(registerPath); err != nil {
		return
	}
	data, _, err := c.conn.Get(registerPath)
	if err != nil {
		return
	}
	value, _ := strconv.ParseInt(string(data), 10, 64)
	c.recordOperation(registerPath, read{value}, called, c.now())
}

// requireExpectedFailure asserts that an acquisition that failed has returned an expected error.
func (c *client) requireExpectedFailure(err error) {
	for _, reason := range []error{context.DeadlineExceeded, ErrHeld, recipes.ErrDeleted} {
		if errors.Is(err, reason) {
			return
		}
	}
	c.Violate("client %d: unexpected error of an acquisition: %v", c.id, err)
}

// assumeStatedTimeout makes the library assume that the servers have granted the stated session
// timeout.
func (c *client) assumeStatedTimeout() {
	connection.RecordOf(c.conn).Push(connection.Event{Timeout: c.stated})
}

// acquire calls lock, records the hold, calls use while the lock is held, and releases the lock. grant returns
// the operation that represents the acquisition in the history.
func (c *client) acquire(lock func(context.Context) (*Hold, error), grant func(token int64) any, use func(h *Hold)) {
	ctx, cancel := c.callContext()
	defer cancel()
	called, before := c.now(), c.conn.SessionID()
	h, err := lock(ctx)
	if err != nil {
		c.requireExpectedFailure(err)
		return
	}
	over := c.recordHold(node, h, grant(h.Token()), yield{h.Token()}, called, before, c.conn.SessionID())
	use(h)
	over()
}

func exclusiveInput(token int64) any { return acquire{token} }

func sharedInput(token int64) any { return share{token} }

// contendMutex repeatedly acquires the mutex, writes to the register, and releases the mutex. It writes
// immediately after the acquisition, and again at a time at which the client may have lost the lock.
func contendMutex(c *client) {
	contend(c, func() (exclusiveLock, error) { return NewMutex(c.conn, node, recipes.WithSessionTimeout(c.stated)) })
}

// contendSingle is like contendMutex, for a Single. All clients write the same data.
func contendSingle(c *client) {
	contend(c, func() (exclusiveLock, error) {
		return NewSingle(c.conn, node+"/single", []byte("owner"), recipes.WithSessionTimeout(c.stated))
	})
}

// exclusiveLock is a lock with at most one holder.
type exclusiveLock interface {
	Lock(ctx context.Context) (*Hold, error)
	TryLock(ctx context.Context) (*Hold, error)
}

// contend implements contendMutex and contendSingle for the lock that open returns.
func contend(c *client, open func() (exclusiveLock, error)) {
	c.assumeStatedTimeout()
	m, err := open()
	if err != nil {
		c.Violate("%v", err)
		return
	}
	for !c.over.Load() {
		lock := m.Lock
		if c.r.IntN(4) == 0 {
			lock = m.TryLock
		}
		c.acquire(lock, exclusiveInput, func(h *Hold) {
			c.writeRegister(h)
			c.pauseRandomly(h.Context())
			if c.r.IntN(2) == 0 {
				c.readRegister()
			}
			c.writeRegister(h)
		})
		c.pauseRandomly(context.Background())
	}
}

// contendRWMutex repeatedly acquires the lock for reading or for writing, and sometimes downgrades
// it.
func contendRWMutex(c *client) {
	c.assumeStatedTimeout()
	m, err := NewRWMutex(c.conn, node, recipes.WithSessionTimeout(c.stated))
	if err != nil {
		c.Violate("%v", err)
		return
	}
	for !c.over.Load() {
		reads, try := c.r.IntN(2) == 0, c.r.IntN(5) == 0
		if reads {
			lock := m.RLock
			if try {
				lock = m.TryRLock
			}
			c.acquire(lock, sharedInput, func(h *Hold) {
				c.readRegister()
				c.pauseRandomly(h.Context())
			})
		} else {
			lock := m.Lock
			if try {
				lock = m.TryLock
			}
			var x *WriteHold
			c.acquire(func(ctx context.Context) (h *Hold, err error) {
				if x, err = lock(ctx); err == nil {
					h = x.Hold
				}
				return h, err
			}, exclusiveInput, func(h *Hold) {
				c.writeRegister(h)
				if c.r.IntN(2) == 0 {
					c.downgradeHold(x)
				} else {
					c.pauseRandomly(h.Context())
					c.writeRegister(h)
				}
			})
		}
		c.pauseRandomly(context.Background())
	}
}

// downgradeHold downgrades a write lock.
func (c *client) downgradeHold(h *WriteHold) {
	called := c.now()
	err := h.Downgrade()
	c.Note("client %d: downgrade: %v", c.id, err)
	if err == nil {
		c.recordOperation(node, downgrade{h.Token(), false}, called, c.now())
	} else {
		c.recordOperation(node, downgrade{h.Token(), true}, called, never)
	}
	c.pauseRandomly(h.Context())
}

// TestLinearizable_UnderRandomFaults checks that the calls of clients under random faults are linearizable: for
// example, two clients must not hold the lock at the same time, and a former holder must not write.
func TestLinearizable_UnderRandomFaults(t *testing.T) {
	for name, p := range map[string]program{"Mutex": contendMutex, "RWMutex": contendRWMutex, "Single": contendSingle} {
		t.Run(name, func(t *testing.T) {
			faultschedule.Run(t, 60, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
				s := newSchedule(seed)
				f := runSchedule(t, s, p, verbose, nil)
				f.requireLinearizable(node, lockModel)
				f.requireLinearizable(registerPath, registerModel)
				return s, f.History
			})
		})
	}
}

// TestLinearizable_DetectsTooLongLeases checks that the histories of the lock are not linearizable if the
// library assumes a session timeout that is far too long, so that its leases are too long. The register must
// still be linearizable, because it rejects old tokens.
func TestLinearizable_DetectsTooLongLeases(t *testing.T) {
	found := 0
	for seed := range uint64(60) {
		s := newSchedule(1 + seed)
		s.stated *= 20
		f := runSchedule(t, s, contendMutex, false, nil)
		if f.checkHistory(node, lockModel) != nil {
			found++
		}
		require.NoError(t, f.checkHistory(registerPath, registerModel))
	}
	require.NotZero(t, found)
	t.Logf("%d histories with two holders at a time", found)
}

// TestLinearizable_LockModelRejectsImpossibleHistory checks that the model of the lock rejects impossible
// histories, and accepts possible ones.
func TestLinearizable_LockModelRejectsImpossibleHistory(t *testing.T) {
	requireLegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(yield{1}, 3, 4), newOperation(acquire{2}, 2, 5))
	requireLegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(yield{1}, 3, never), newOperation(acquire{2}, 2, 5))
	requireIllegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(yield{1}, 6, 7), newOperation(acquire{2}, 2, 5))
	requireIllegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(acquire{2}, 2, 5))
	requireIllegal(t, lockModel, newOperation(acquire{2}, 1, 2), newOperation(yield{2}, 3, 4), newOperation(acquire{1}, 5, 6))
	requireLegal(t, lockModel, newOperation(share{1}, 1, 2), newOperation(share{2}, 1, 2), newOperation(yield{1}, 3, 4), newOperation(yield{2}, 3, 4), newOperation(acquire{3}, 1, 5))
	requireIllegal(t, lockModel, newOperation(share{1}, 1, 2), newOperation(share{2}, 1, 2), newOperation(yield{1}, 3, 4), newOperation(yield{2}, 6, 7), newOperation(acquire{3}, 1, 5))
	requireLegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(downgrade{1, false}, 3, 4), newOperation(share{2}, 1, 5))
	requireIllegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(downgrade{1, false}, 6, 7), newOperation(share{2}, 1, 5))
	requireLegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(downgrade{1, true}, 3, never), newOperation(share{2}, 1, 5))
	requireLegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(downgrade{1, true}, 3, never), newOperation(yield{1}, 4, 5), newOperation(acquire{2}, 1, 6))
	requireIllegal(t, lockModel, newOperation(acquire{1}, 1, 2), newOperation(downgrade{1, false}, 3, 4), newOperation(acquire{2}, 1, 5), newOperation(yield{1}, 6, 7))
}

// TestLinearizable_RegisterModelRejectsImpossibleHistory checks that the model of the register rejects
// impossible histories, and accepts possible ones.
func TestLinearizable_RegisterModelRejectsImpossibleHistory(t *testing.T) {
	requireLegal(t, registerModel, newOperation(write{1, 7, false}, 1, 2), newOperation(read{7}, 3, 4))
	requireIllegal(t, registerModel, newOperation(write{1, 7, false}, 1, 2), newOperation(read{0}, 3, 4))
	requireIllegal(t, registerModel, newOperation(write{2, 7, false}, 1, 2), newOperation(write{1, 8, false}, 3, 4))
	requireLegal(t, registerModel, newOperation(write{1, 7, true}, 1, never), newOperation(write{2, 8, false}, 3, 4), newOperation(read{8}, 5, 6))
	requireLegal(t, registerModel, newOperation(write{1, 7, true}, 1, never), newOperation(read{0}, 3, 4), newOperation(read{7}, 5, 6))
	requireIllegal(t, registerModel, newOperation(write{1, 7, true}, 1, never), newOperation(write{2, 8, false}, 3, 4), newOperation(read{7}, 5, 6))
}
