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

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// acquire, share, downgrade and release are operations on a lock.
type (
	acquire   struct{ token int64 }
	share     struct{ token int64 }
	downgrade struct {
		token   int64
		unknown bool // whether it was carried out
	}
	yield struct{ token int64 }
)

// lockState is who has a lock: one writer, or readers by their tokens in between
// commas.
type lockState struct {
	writer  int64
	readers string
	written int64 // the greatest token of a writer
	read    int64 // that of a reader
}

func mark(token int64) string { return fmt.Sprintf(",%d,", token) }

// lockModel is a lock that grants what excludes each other one after the other, to
// greater and greater tokens. A mutex is one without readers.
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
			s.readers += mark(in.token)
			s.read = max(s.read, in.token)
		case downgrade:
			if s.writer != in.token {
				return in.unknown, s
			}
			s.writer, s.readers = 0, mark(in.token)
		case yield:
			switch {
			case s.writer == in.token:
				s.writer = 0
			case strings.Contains(s.readers, mark(in.token)):
				s.readers = strings.Replace(s.readers, mark(in.token), "", 1)
			default:
				return false, s
			}
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%T %v", input, input) },
}

// write and read are operations on what holders write to.
type (
	write struct {
		token, value int64
		unknown      bool // whether it was carried out
	}
	read struct{ value int64 }
)

type registerState struct{ token, value int64 }

// registerModel is a register that refuses tokens smaller than the greatest it has
// seen. A write of which nobody knows may be carried out late, or never, which is as if
// after everything else.
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

// writes has a holder write a value that nobody else writes.
func (c *client) writes(h *Hold) {
	value := c.now()
	_, err := h.Multi(&zk.SetDataRequest{Path: registered, Data: strconv.AppendInt(nil, value, 10), Version: -1})
	switch {
	case err == nil:
		c.operation(registered, write{h.Token(), value, false}, value, c.now())
	case errors.Is(err, recipes.ErrUnconfirmed):
		c.operation(registered, write{h.Token(), value, true}, value, never)
	case !errors.Is(err, ErrNotHeld):
		c.violation("client %d: %v", c.id, err)
	}
}

// reads has a client, whether it holds a lock or not, read what was written last.
func (c *client) reads() {
	called := c.now()
	if _, err := c.conn.Sync(registered); err != nil {
		return
	}
	data, _, err := c.conn.Get(registered)
	if err != nil {
		return
	}
	value, _ := strconv.ParseInt(string(data), 10, 64)
	c.operation(registered, read{value}, called, c.now())
}

// mayFail checks that there was a reason not to get a lock.
func (c *client) mayFail(err error) {
	for _, reason := range []error{context.DeadlineExceeded, ErrHeld, recipes.ErrSessionExpired, recipes.ErrDeleted} {
		if errors.Is(err, reason) {
			return
		}
	}
	c.violation("client %d: no lock for no reason: %v", c.id, err)
}

// grant has the client believe that the servers have granted what it is told.
func (c *client) grant() { handshake.Of(c.conn).Grant(c.told) }

// contendMutex locks, writes what only a holder may write, at once and at a time at
// which it may have lost the lock, and releases.
func contendMutex(c *client) {
	c.grant()
	m, err := NewMutex(c.conn, node, recipes.WithSessionTimeout(c.told))
	if err != nil {
		c.violation("%v", err)
		return
	}
	for !c.over.Load() {
		ctx, cancel := c.within()
		lock := m.Lock
		if c.r.IntN(4) == 0 {
			lock = m.TryLock
		}
		called, before := c.now(), c.conn.SessionID()
		h, err := lock(ctx)
		if err != nil {
			c.mayFail(err)
			cancel()
			c.pauses(context.Background())
			continue
		}
		over := c.held(node, h, acquire{h.Token()}, yield{h.Token()}, called, before, c.conn.SessionID())
		c.writes(h)
		c.pauses(h.Context())
		if c.r.IntN(2) == 0 {
			c.reads()
		}
		c.writes(h)
		cancel()
		ctx, cancel = c.within()
		over(ctx)
		cancel()
		c.pauses(context.Background())
	}
}

// contendRWMutex reads, writes, or writes and goes on to read.
func contendRWMutex(c *client) {
	c.grant()
	m, err := NewRWMutex(c.conn, node, recipes.WithSessionTimeout(c.told))
	if err != nil {
		c.violation("%v", err)
		return
	}
	for !c.over.Load() {
		ctx, cancel := c.within()
		called, before := c.now(), c.conn.SessionID()
		switch reads, try := c.r.IntN(2) == 0, c.r.IntN(5) == 0; {
		case reads:
			lock := m.RLock
			if try {
				lock = m.TryRLock
			}
			h, err := lock(ctx)
			if err != nil {
				c.mayFail(err)
				break
			}
			over := c.held(node, h, share{h.Token()}, yield{h.Token()}, called, before, c.conn.SessionID())
			c.reads()
			c.pauses(h.Context())
			within, cancel := c.within()
			over(within)
			cancel()
		default:
			lock := m.Lock
			if try {
				lock = m.TryLock
			}
			h, err := lock(ctx)
			if err != nil {
				c.mayFail(err)
				break
			}
			over := c.held(node, h.Hold, acquire{h.Token()}, yield{h.Token()}, called, before, c.conn.SessionID())
			c.writes(h.Hold)
			if c.r.IntN(2) == 0 {
				c.downgrades(h)
			} else {
				c.pauses(h.Context())
				c.writes(h.Hold)
			}
			within, cancel := c.within()
			over(within)
			cancel()
		}
		cancel()
		c.pauses(context.Background())
	}
}

// downgrades has a holder go on to read.
func (c *client) downgrades(h *WriteHold) {
	called := c.now()
	ctx, cancel := c.within()
	defer cancel()
	err := h.Downgrade(ctx)
	c.note("client %d: downgrade: %v", c.id, err)
	if err == nil {
		c.operation(node, downgrade{h.Token(), false}, called, c.now())
	} else {
		c.operation(node, downgrade{h.Token(), true}, called, never)
	}
	c.pauses(h.Context())
}

func TestLinearizableMutex(t *testing.T) {
	explore(t, contendMutex, func(f *fray) {
		f.check(node, lockModel)
		f.check(registered, registerModel)
	})
}

func TestLinearizableRWMutex(t *testing.T) {
	explore(t, contendRWMutex, func(f *fray) {
		f.check(node, lockModel)
		f.check(registered, registerModel)
	})
}

// Leases are reckoned by the session timeout that the library is told. The histories
// must show it where that is far too long, and the register must stand it.
func TestLinearizableFindsLeasesThatAreTooLong(t *testing.T) {
	found := 0
	for seed := range uint64(60) {
		s := newSchedule(1 + seed)
		s.told *= 20
		f := fight(t, s, contendMutex)
		f.check(node, lockModel)
		for _, v := range f.violations {
			if strings.HasPrefix(v, "the history of "+node) {
				found++
			}
		}
		f.violations = nil
		f.check(registered, registerModel)
		require.Empty(t, f.violations)
	}
	require.NotZero(t, found)
	t.Logf("%d histories with two holders", found)
}

func TestLockModel(t *testing.T) {
	op := func(input any, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: input, Call: call, Return: ret}
	}
	requireLegal(t, lockModel, op(acquire{1}, 1, 2), op(yield{1}, 3, 4), op(acquire{2}, 2, 5))
	requireLegal(t, lockModel, op(acquire{1}, 1, 2), op(yield{1}, 3, never), op(acquire{2}, 2, 5))
	requireIllegal(t, lockModel, op(acquire{1}, 1, 2), op(yield{1}, 6, 7), op(acquire{2}, 2, 5))
	requireIllegal(t, lockModel, op(acquire{1}, 1, 2), op(acquire{2}, 2, 5))
	requireIllegal(t, lockModel, op(acquire{2}, 1, 2), op(yield{2}, 3, 4), op(acquire{1}, 5, 6))
	requireLegal(t, lockModel, op(share{1}, 1, 2), op(share{2}, 1, 2), op(yield{1}, 3, 4), op(yield{2}, 3, 4), op(acquire{3}, 1, 5))
	requireIllegal(t, lockModel, op(share{1}, 1, 2), op(share{2}, 1, 2), op(yield{1}, 3, 4), op(yield{2}, 6, 7), op(acquire{3}, 1, 5))
	requireLegal(t, lockModel, op(acquire{1}, 1, 2), op(downgrade{1, false}, 3, 4), op(share{2}, 1, 5))
	requireIllegal(t, lockModel, op(acquire{1}, 1, 2), op(downgrade{1, false}, 6, 7), op(share{2}, 1, 5))
	requireLegal(t, lockModel, op(acquire{1}, 1, 2), op(downgrade{1, true}, 3, never), op(share{2}, 1, 5))
	requireLegal(t, lockModel, op(acquire{1}, 1, 2), op(downgrade{1, true}, 3, never), op(yield{1}, 4, 5), op(acquire{2}, 1, 6))
	requireIllegal(t, lockModel, op(acquire{1}, 1, 2), op(downgrade{1, false}, 3, 4), op(acquire{2}, 1, 5), op(yield{1}, 6, 7))
}

func TestRegisterModel(t *testing.T) {
	op := func(input any, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: input, Call: call, Return: ret}
	}
	requireLegal(t, registerModel, op(write{1, 7, false}, 1, 2), op(read{7}, 3, 4))
	requireIllegal(t, registerModel, op(write{1, 7, false}, 1, 2), op(read{0}, 3, 4))
	requireIllegal(t, registerModel, op(write{2, 7, false}, 1, 2), op(write{1, 8, false}, 3, 4))
	requireLegal(t, registerModel, op(write{1, 7, true}, 1, never), op(write{2, 8, false}, 3, 4), op(read{8}, 5, 6))
	requireLegal(t, registerModel, op(write{1, 7, true}, 1, never), op(read{0}, 3, 4), op(read{7}, 5, 6))
	requireIllegal(t, registerModel, op(write{1, 7, true}, 1, never), op(write{2, 8, false}, 3, 4), op(read{7}, 5, 6))
}
