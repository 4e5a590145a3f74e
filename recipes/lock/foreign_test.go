package lock

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestLock_IsGrantedDespiteForeignZnodes checks that all contenders of a lock or a semaphore are granted it one
// after another, whatever znodes other programs create beside theirs. A contender waits only for a foreign
// znode that has the name of an earlier contender, until that znode is deleted.
func TestLock_IsGrantedDespiteForeignZnodes(t *testing.T) {
	acquire := func(s *Semaphore, err error) func(ctx context.Context) (*Hold, error) {
		return func(ctx context.Context) (*Hold, error) {
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, 1)
		}
	}
	type kind struct {
		dir, base string // dir is the directory of the contenders, and base the part of their names before the number
		// librariesOnly is true if only children with the names of Curator, kazoo or this library count as
		// contenders.
		librariesOnly bool
		lock          func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error)
	}
	mutex := func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error) {
		m, err := NewMutex(conn, node, withTimeout(opts)...)
		require.NoError(t, err)
		return m.Lock
	}
	kinds := map[string]kind{
		"Mutex": {node, "-lock-", false, mutex},
		"Mutex with a lock-delay": {node, "-lock-", false, func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error) {
			return mutex(conn, append(opts, WithLockDelay(time.Second))...)
		}},
		"RWMutex": {node, "-__WRIT__", false, func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error) {
			m, err := NewRWMutex(conn, node, withTimeout(opts)...)
			require.NoError(t, err)
			return func(ctx context.Context) (*Hold, error) {
				h, err := m.Lock(ctx)
				if err != nil {
					return nil, err
				}
				return h.Hold, nil
			}
		}},
		"Semaphore": {node, "-lease-", true, func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error) {
			return acquire(NewSemaphore(conn, node, 1, withTimeout(opts)...))
		}},
		"Curator semaphore": {node + "/locks", "-lock-", false, func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error) {
			return acquire(NewSemaphore(conn, node, 1, withTimeout(append(opts, WithCuratorLayout()))...))
		}},
		"kazoo semaphore": {node + "-__lock__", "__lock__", false, func(conn *zk.Conn, opts ...Option) func(ctx context.Context) (*Hold, error) {
			return acquire(NewSemaphore(conn, node, 1, withTimeout(append(opts, recipes.WithKazooLayout()))...))
		}},
	}
	secret := zk.DigestACL(zk.PermAll, "some", "one")
	withoutRead := zk.WorldACL(zk.PermAll &^ zk.PermRead)
	large := make([]byte, 100<<10)
	const (
		ignored = iota // the child is not a contender
		waits          // the contenders wait until the child is deleted
		unknown        // the child has a name of no library: like ignored if librariesOnly is set, otherwise like waits
		later          // the child is a contender behind the others
	)
	const id = "_c_00000000-0000-4000-8000-000000000001"
	const sequential = zk.FlagEphemeral | zk.FlagSequence
	for name, c := range map[string]struct {
		child   string // name of the created znode; BASE is replaced by the base of the kind
		flags   int32
		data    []byte
		acl     []zk.ACL
		below   string // name of a child of the created znode
		edit    []byte // data that is written to the created znode later
		outcome int
		warning string
	}{
		"as documented":                  {child: id + "BASE", flags: sequential, outcome: waits},
		"name without a number":          {child: id + "BASE", flags: zk.FlagEphemeral},
		"name is another":                {child: "foreign", flags: zk.FlagEphemeral},
		"name is another, persistent":    {child: "foreign", below: "x"},
		"name is only a number":          {child: "", flags: sequential, outcome: unknown},
		"name is only a sign":            {child: "-", flags: sequential, outcome: unknown},
		"name is long":                   {child: strings.Repeat("x", 10_000) + "-", flags: sequential, outcome: unknown},
		"name has special signs":         {child: "ü %s-", flags: sequential, outcome: unknown},
		"name without a GUID":            {child: "BASE", flags: sequential, outcome: waits},
		"GUID is garbage":                {child: "_c_%$BASE", flags: sequential, outcome: waits},
		"data is not text":               {child: id + "BASE", flags: sequential, data: []byte{0xff, 0xfe, 0}, outcome: waits},
		"data is larger than buffers":    {child: id + "BASE", flags: sequential, data: large, outcome: waits},
		"data becomes too large":         {child: id + "BASE", flags: sequential, edit: large, outcome: waits},
		"data is edited":                 {child: id + "BASE", flags: sequential, edit: []byte(releaseRequest), outcome: waits},
		"no right to read":               {child: id + "BASE", flags: sequential, acl: withoutRead, outcome: waits},
		"no right at all":                {child: id + "BASE", flags: sequential, data: []byte("name"), acl: secret, outcome: waits},
		"unknown name, no right at all":  {child: "x-", flags: sequential, data: large, acl: secret, outcome: unknown},
		"persistent":                     {child: id + "BASE", flags: zk.FlagSequence, outcome: waits, warning: "is persistent"},
		"persistent, with a child":       {child: id + "BASE", flags: zk.FlagSequence, below: "x", outcome: waits, warning: "is persistent"},
		"persistent, no right at all":    {child: id + "BASE", flags: zk.FlagSequence, acl: secret, outcome: waits, warning: "is persistent"},
		"persistent, unknown name":       {child: "x-", flags: zk.FlagSequence, below: "x"},
		"number is negative":             {child: id + "BASE-0000000001", flags: zk.FlagEphemeral, outcome: waits},
		"number is the least":            {child: id + "BASE-2147483648", flags: zk.FlagEphemeral, outcome: later},
		"number is the greatest":         {child: id + "BASE2147483647", flags: zk.FlagEphemeral, outcome: later},
		"number is too great":            {child: id + "BASE9999999999", flags: zk.FlagEphemeral},
		"number is short":                {child: id + "BASE0", flags: zk.FlagEphemeral},
		"limit of zero":                  {child: "limit-0-", flags: zk.FlagSequence},
		"limit is negative":              {child: "limit--1-", flags: zk.FlagSequence},
		"limit is too great":             {child: "limit-99999999999999999999-", flags: zk.FlagSequence},
		"limit is not a number":          {child: "limit-x-", flags: zk.FlagSequence},
		"limit with a child":             {child: "limit-1-", flags: zk.FlagSequence, below: "x"},
		"limit without rights":           {child: "limit-1-", flags: zk.FlagSequence, acl: secret},
		"limit has the greatest number":  {child: "limit-1-2147483647"},
		"marker without a GUID":          {child: "held-w-"},
		"marker with garbage":            {child: "held-w-0000000000", data: large},
		"marker without rights":          {child: "held-w-x", acl: secret},
		"marker is ephemeral":            {child: "held-w-x", flags: zk.FlagEphemeral},
		"marker with a child":            {child: "held-w-x", below: "x"},
		"marker of a reader, with child": {child: "held-r-x", below: "x"},
		"tombstone":                      {child: "DONE"},
	} {
		for kindName, k := range kinds {
			t.Run(name+"/"+kindName, func(t *testing.T) {
				runTest(t, 1, func(w *harness) {
					// The client library cannot remove the watch on a znode that it may not read.
					w.allowLeftovers = true
					logs := &testenv.Buffer{}
					logged := recipes.WithLogger(slog.New(slog.NewTextHandler(logs, nil)))
					join := func() *call {
						conn := w.connect()
						a := w.startCall(conn, k.lock(conn, logged))
						w.passTime(3 * time.Second)
						return a
					}
					first := join()
					first.requireHolds()
					acl := c.acl
					if acl == nil {
						acl = zk.WorldACL(zk.PermAll)
					}
					foreign := bubble.Connect(w, w.srv, timeout, zk.WithMaxBufferSize(0))
					path, err := foreign.Create(k.dir+"/"+strings.ReplaceAll(c.child, "BASE", k.base), c.data, c.flags, acl)
					require.NoError(w, err)
					if c.below != "" && c.acl == nil {
						w.create(path + "/" + c.below)
					}
					second, third := join(), join()
					if c.edit != nil {
						_, err := foreign.Set(path, c.edit, -1)
						require.NoError(w, err)
						w.passTime(timeout)
					}
					second.requireWaits()
					first.release()
					w.passTime(timeout)
					if k.dir == node && !k.librariesOnly {
						all, err := w.mutex(second.conn).Contenders(w.Context())
						require.NoError(w, err)
						listed := slices.ContainsFunc(all, func(c Contender) bool { return c.Path == path })
						require.Equal(w, c.outcome != ignored, listed && len(all) == 3)
					}
					if c.outcome == waits || c.outcome == unknown && !k.librariesOnly {
						second.requireWaits()
						third.requireWaits()
						if c.warning != "" {
							// A contender that may not read the foreign znode repeats the read until the znode is
							// deleted.
							w.passTime(time.Minute)
						}
						if c.below != "" {
							w.remove(path + "/" + c.below)
						}
						require.NoError(w, foreign.Delete(path, -1))
						// If the server sends no event, the contender reads the znode again after a while.
						w.passTime(15 * time.Second)
					}
					second.requireHolds()
					third.requireWaits()
					second.release()
					w.passTime(timeout)
					third.requireHolds()
					third.release()
					if k.librariesOnly && strings.HasPrefix(c.child, "limit-1-") {
						s, err := NewSemaphore(third.conn, node, 1)
						require.NoError(w, err)
						if c.below != "" {
							err := s.SetLimit(w.Context(), 2)
							require.ErrorIs(w, err, zk.ErrNotEmpty)
							require.ErrorContains(w, err, "delete the children of "+path)
							w.remove(path + "/" + c.below)
						}
						require.NoError(w, s.SetLimit(w.Context(), 2))
						limit, err := s.Limit(w.Context())
						require.NoError(w, err)
						require.Equal(w, 2, limit)
					}
					if c.warning != "" && !k.librariesOnly {
						require.Equal(w, 1, strings.Count(logs.String(), c.warning), logs.String())
						require.Contains(w, logs.String(), path)
					}
				})
			})
		}
	}
}
