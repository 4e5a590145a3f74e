package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	"github.com/go-leaderelection/leaderelection/resign"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// cancellableCalls contains calls whose results would be wrong if they mistook the cause of their context for an answer
// of the servers. Each function prepares the state of the servers over another connection, and returns the call.
var cancellableCalls = map[string]func(t *testing.T, conn, other *zk.Conn) (call func(context.Context) error){
	"barrier, wait": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		b := must(barrier.New(conn, "/app/gate"))
		require.NoError(t, must(barrier.New(other, "/app/gate")).Set(t.Context()))
		return b.Wait
	},
	"barrier, set": func(_ *testing.T, conn, _ *zk.Conn) func(context.Context) error {
		return must(barrier.New(conn, "/app/gate")).Set
	},
	"barrier, enter": func(_ *testing.T, conn, _ *zk.Conn) func(context.Context) error {
		d := must(barrier.NewDouble(conn, "/app/double", 1))
		return func(ctx context.Context) error { return errorOf(d.Enter(ctx)) }
	},
	"barrier, leave": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		d, entered := must(barrier.NewDouble(conn, "/app/double", 2)), must(barrier.NewDouble(other, "/app/double", 2))
		go entered.Enter(t.Context())
		return must(d.Enter(t.Context())).Leave
	},
	"single": func(_ *testing.T, conn, other *zk.Conn) func(context.Context) error {
		must(other.Create("/app", nil, 0, zk.WorldACL(zk.PermAll)))
		s := must(lock.NewSingle(conn, "/app/single", nil))
		return func(ctx context.Context) error { return errorOf(s.Lock(ctx)) }
	},
	"semaphore, limit": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		require.NoError(t, must(lock.NewSemaphore(other, "/app/semaphore", 3)).SetLimit(t.Context(), 2))
		s := must(lock.NewSemaphore(conn, "/app/semaphore", 3))
		return func(ctx context.Context) error { return errorOf(s.Limit(ctx)) }
	},
	"semaphore with shared count, limit": func(_ *testing.T, conn, _ *zk.Conn) func(context.Context) error {
		s := must(lock.NewSemaphore(conn, "/app/semaphore", 3, lock.WithCuratorLayout(), lock.WithSharedCount("/app/count")))
		return func(ctx context.Context) error { return errorOf(s.Limit(ctx)) }
	},
	"mutex, request": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		h := must(must(lock.NewMutex(other, "/app/mutex")).Lock(t.Context()))
		m := must(lock.NewMutex(conn, "/app/mutex"))
		return func(ctx context.Context) error { return m.RequestRelease(ctx, lock.Contender{Path: h.Path()}) }
	},
	"queue, create": func(t *testing.T, conn, _ *zk.Conn) func(context.Context) error {
		return openJobs(t, conn).Create
	},
	"queue, get": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		id, q := must(openJobs(t, other).Put(t.Context(), nil)), openJobs(t, conn)
		return func(ctx context.Context) error { return errorOf(q.Get(ctx, id)) }
	},
	"queue, list": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		must(openJobs(t, other).Put(t.Context(), nil))
		q := openJobs(t, conn)
		return func(ctx context.Context) error { return errorOf(q.List(ctx, 1)) }
	},
	"queue, dead letters": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		makeDeadLetter(t, other)
		q := openJobs(t, conn)
		return func(ctx context.Context) error { return errorOf(q.DeadLetters(ctx)) }
	},
	"queue, discard": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		letter, q := makeDeadLetter(t, other), openJobs(t, conn)
		return func(ctx context.Context) error { return q.Discard(ctx, letter) }
	},
	"value, set": func(_ *testing.T, conn, _ *zk.Conn) func(context.Context) error {
		v := must(value.New(conn, "/app/value", recipes.StringCodec()))
		return func(ctx context.Context) error { return errorOf(v.CompareAndSet(ctx, value.Version{}, "a")) }
	},
	"value, replace": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		version := must(must(value.New(other, "/app/value", recipes.StringCodec())).Set(t.Context(), "a"))
		v := must(value.New(conn, "/app/value", recipes.StringCodec()))
		return func(ctx context.Context) error { return errorOf(v.CompareAndSet(ctx, version, "b")) }
	},
	"value, watch": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		must(must(value.New(other, "/app/value", recipes.StringCodec())).Set(t.Context(), "a"))
		v := must(value.New(conn, "/app/value", recipes.StringCodec()))
		return func(ctx context.Context) error {
			for c := range v.Watch(ctx) {
				if c.Value != "a" {
					return fmt.Errorf("delivered %+v", c)
				}
			}
			return context.Cause(ctx)
		}
	},
	"group, members": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		join(t, other)
		g := must(group.New(conn, "/app/group"))
		return func(ctx context.Context) error { return errorOf(g.Members(ctx)) }
	},
	"group, watch": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		join(t, other)
		g := must(group.New(conn, "/app/group"))
		return func(ctx context.Context) error {
			for v := range g.Watch(ctx) {
				if len(v.Members) != 1 || v.Members[0].Err != nil {
					return fmt.Errorf("delivered %+v", v)
				}
			}
			return context.Cause(ctx)
		}
	},
	"discovery": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		r := must(must(discovery.New(other, "/app/services")).Register(t.Context(), discovery.Instance{Name: "shop"}))
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		d := must(discovery.New(conn, "/app/services"))
		return func(ctx context.Context) error { return errorOf(d.Instances(ctx, "shop")) }
	},
	"candidates": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		startLeader(t, other)
		return func(ctx context.Context) error {
			return errorOf(leaderelection.Candidates(ctx, conn, "/app/election"))
		}
	},
	"request to resign": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		id := startLeader(t, other)
		return func(ctx context.Context) error { return resign.Request(ctx, conn, "/app/election", id) }
	},
	"end of the election": func(t *testing.T, conn, other *zk.Conn) func(context.Context) error {
		startLeader(t, other)
		return func(ctx context.Context) error {
			return leaderelection.DeleteElection(conn, "/app/election", leaderelection.WithContext(ctx))
		}
	},
	"candidate": func(_ *testing.T, conn, _ *zk.Conn) func(context.Context) error {
		return func(ctx context.Context) error {
			return errorOf(leaderelection.NewElection(conn, "/app/election", leaderelection.WithContext(ctx), leaderelection.WithCreateNode()))
		}
	},
}

// TestCalls_DistinguishContextCauseFromAnswer checks that a call does not mistake the cause of its context for an
// answer of the servers. A program can cancel a group of goroutines with the error of the first one, for example
// zk.ErrNodeExists, and a call of another goroutine must not conclude that its znode exists. The context ends
// before the call, or while the servers process the n-th request.
func TestCalls_DistinguishContextCauseFromAnswer(t *testing.T) {
	for name, prepare := range cancellableCalls {
		for _, cause := range []error{zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoAuth} {
			for nth := range 4 {
				t.Run(fmt.Sprint(name, "/", cause, "/", nth), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						srv := zktest.Start(t)
						conn := connect(t, srv)
						call := prepare(t, conn, connect(t, srv))
						synctest.Wait()
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						if nth == 0 {
							cancel(cause)
						} else {
							srv.Before(zktest.Match{Session: conn.SessionID(), Nth: nth}, func(q *zktest.Request) zktest.Verdict {
								cancel(cause)
								time.Sleep(bubble.Margin)
								return zktest.Pass(q)
							})
							time.AfterFunc(time.Minute, func() { cancel(context.Canceled) })
						}
						err := call(ctx)
						if ended := errors.Is(context.Cause(ctx), cause); !ended {
							return // the call has sent fewer requests
						}
						require.ErrorIs(t, err, cause)
						bubble.Advance(time.Minute)
						for _, s := range srv.Sessions() {
							for _, path := range s.Ephemerals {
								require.False(t, s.ID == conn.SessionID() && !strings.Contains(path, "_r_") && !strings.Contains(path, "client-"), path)
							}
						}
					})
				})
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func errorOf[T any](_ T, err error) error { return err }

func openJobs(t *testing.T, conn *zk.Conn) *queue.Queue { return newQueue(t, conn, "/app/jobs", nil) }

// makeDeadLetter puts an item and makes it a dead letter.
func makeDeadLetter(t *testing.T, conn *zk.Conn) queue.DeadLetter {
	q := openJobs(t, conn)
	must(q.Put(t.Context(), nil))
	require.NoError(t, must(q.Take(t.Context())).Return(queue.Reject(errors.New("failed"))))
	return must(q.DeadLetters(t.Context()))[0]
}

func join(t *testing.T, conn *zk.Conn) {
	m := must(must(group.New(conn, "/app/group")).Join(t.Context(), "member", nil))
	t.Cleanup(func() { require.NoError(t, m.Close()) })
}

// startLeader starts a candidate, waits until it leads, and returns its ID.
func startLeader(t *testing.T, conn *zk.Conn) string {
	e := must(leaderelection.NewElection(conn, "/app/election", leaderelection.WithCreateNode()))
	go func() { _ = e.ElectLeader() }()
	t.Cleanup(func() { _ = e.Resign() })
	synctest.Wait()
	return e.ID()
}
