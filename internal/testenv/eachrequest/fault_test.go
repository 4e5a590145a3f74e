package eachrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Fault is a fault that happens at one request of the client.
type Fault struct {
	Name string
	// Before is called before the server applies the request, and After is called afterwards.
	Before, After func(r *Run, q *zktest.Request) zktest.Verdict
	// Errors contains the errors that operations of the client may return. Operations that cannot be repeated may
	// also return ErrUnconfirmed. If Errors is empty, operations must return nil.
	Errors []error
	// Ends is set if the fault ends a session whose client still uses it, or closes the connection. Another client
	// may then hold the lock before the client notices the end, so the test does not count the leases of the client
	// when it verifies how many leases are valid.
	Ends bool
	// Closes is set if the fault is that the client closes its connection.
	Closes bool
	// Code is the error code with which the server answers, or nil.
	Code *connection.Code
}

// Timeout is the session timeout of all clients.
const Timeout = 4 * time.Second

var (
	lossErrors = []error{
		leaderelection.ErrSessionExpired, leaderelection.ErrLeaseExpired, leaderelection.ErrDeleted,
		leaderelection.ErrNotLeader, recipes.ErrNotHeld, recipes.ErrReleased,
	}
	closeErrors     = append(slices.Clone(lossErrors), leaderelection.ErrConnClosed, leaderelection.ErrUnconfirmed, recipes.ErrClosed)
	isolationErrors = append(slices.Clone(lossErrors), leaderelection.ErrUnreachable)
	cancelErrors    = []error{context.Canceled}
)

func expire(r *Run, q *zktest.Request) zktest.Verdict {
	_ = r.Server.ExpireSession(q.Session)
	return zktest.Cut(q)
}

func closeConn(r *Run, q *zktest.Request) zktest.Verdict {
	go r.Conn.Close()
	return zktest.Pass(q)
}

// cancel returns a function that cancels the context of the client with a cause. The cause can be an error of
// ZooKeeper: for example, errgroup.WithContext cancels its context with the first error of a goroutine.
func cancel(cause error) func(*Run, *zktest.Request) zktest.Verdict {
	return func(r *Run, q *zktest.Request) zktest.Verdict {
		r.cancel(cause)
		return zktest.Pass(q)
	}
}

func cutConnection(_ *Run, q *zktest.Request) zktest.Verdict { return zktest.Cut(q) }

// isolate separates the client from the server for longer than the session timeout.
func isolate(r *Run, q *zktest.Request) zktest.Verdict {
	r.Server.Blackhole(zktest.BothWays, q.Session)
	session := r.Server.Before(zktest.Match{Op: zktest.OpConnect, Session: q.Session}, zktest.Cut)
	next := r.Server.Before(zktest.Match{Op: zktest.OpConnect}, func(q *zktest.Request) zktest.Verdict {
		if q.Session == 0 {
			return zktest.Cut(q)
		}
		return zktest.Pass(q)
	})
	time.AfterFunc(3*Timeout, func() { session.Remove(); next.Remove() })
	return zktest.Pass(q)
}

// faults contains faults of connections, sessions, servers and clients.
var faults = []Fault{
	{Name: "lost request", Before: cutConnection},
	{Name: "lost reply", After: cutConnection},
	{Name: "silence", After: func(r *Run, q *zktest.Request) zktest.Verdict {
		r.Server.Blackhole(zktest.BothWays, q.Session)
		return zktest.Pass(q)
	}, Errors: lossErrors},
	{Name: "expiry before", Before: expire, Errors: lossErrors, Ends: true},
	{Name: "expiry after", After: expire, Errors: lossErrors, Ends: true},
	{Name: "close before", Before: closeConn, Errors: closeErrors, Ends: true, Closes: true},
	{Name: "close after", After: closeConn, Errors: closeErrors, Ends: true, Closes: true},
	{Name: "cancel before", Before: cancel(nil), Errors: cancelErrors},
	{Name: "cancel after", After: cancel(nil), Errors: cancelErrors},
	{Name: "cancel, no node", Before: cancel(zk.ErrNoNode), Errors: []error{zk.ErrNoNode}},
	{Name: "cancel, node exists", Before: cancel(zk.ErrNodeExists), Errors: []error{zk.ErrNodeExists}},
	{Name: "cancel, bad version", After: cancel(zk.ErrBadVersion), Errors: []error{zk.ErrBadVersion}},
	{Name: "cancel, no permission", After: cancel(zk.ErrNoAuth), Errors: []error{zk.ErrNoAuth}},
	{Name: "cancel and lost reply", After: func(r *Run, q *zktest.Request) zktest.Verdict {
		r.cancel(nil)
		return zktest.Cut(q)
	}, Errors: cancelErrors},
	{Name: "restart", Before: func(r *Run, q *zktest.Request) zktest.Verdict {
		r.Server.Stop()
		time.AfterFunc(time.Millisecond, func() { r.Server.Restart(zktest.KeepTree) })
		return zktest.Cut(q)
	}, Errors: lossErrors},
	{Name: "isolation before", Before: isolate, Errors: isolationErrors},
	{Name: "isolation after", After: isolate, Errors: isolationErrors},
}

// rejectionTime is how long the server rejects requests in a fault of codeFaults.
const rejectionTime = 2 * time.Second

// codeFaults returns faults in which the server answers a request, and further requests for the same operation,
// with an error code, until rejectionTime has passed. There is one fault for each code in the table, except
// the codes that describe the state of a znode.
func codeFaults() (all []Fault) {
	for i := range connection.Codes {
		code := &connection.Codes[i]
		if code.Class == connection.ClassAnswer || code.Number == -116 { // servers never send the code -116
			continue
		}
		all = append(all, Fault{
			Name: fmt.Sprintf("%s %d", code.Name, code.Number), Code: code,
			Before: func(r *Run, q *zktest.Request) zktest.Verdict {
				fail := zktest.Fail(zktest.Code(code.Number))
				hook := r.Server.Before(zktest.Match{Op: q.Op, Session: q.Session}, fail)
				time.AfterFunc(rejectionTime, hook.Remove)
				return fail(q)
			},
		})
	}
	return all
}

// explainRejection returns "" if an operation of the client may return err, and otherwise the reason why it may not.
func (f *Fault) explainRejection(err error) string {
	for _, permitted := range f.Errors {
		if errors.Is(err, permitted) {
			return ""
		}
	}
	for _, lost := range lossErrors {
		if f.Code != nil && errors.Is(err, lost) {
			return "" // the lease has expired, because the server has rejected its checks
		}
	}
	if f.Code == nil || f.Code.Class == connection.ClassTransient {
		return "the operation must succeed"
	}
	if c := connection.CodeOf(err); c == nil || c.Number != f.Code.Number {
		return "the error does not contain the code"
	}
	for what, text := range map[string]string{
		"code": fmt.Sprintf("(%s %d from ", f.Code.Name, f.Code.Number), "server": serverName, "remedy": f.Code.Remedy, "path": " /app",
	} {
		if !strings.Contains(err.Error(), text) {
			return fmt.Sprintf("the error does not contain the %s, %q", what, text)
		}
	}
	return ""
}
