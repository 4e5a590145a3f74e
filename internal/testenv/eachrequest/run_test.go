package eachrequest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The limits of a run, in fake time.
const (
	// hangLimit is the time after which an operation is considered to hang. Every fault ends earlier.
	hangLimit = time.Minute
	// settleTime is the time within which znodes must disappear after their removal.
	settleTime = 4 * Timeout

	serverName = "zk1:2181"
)

// Run is one execution of a script.
type Run struct {
	state
	Server *zktest.Server
	// Conn is the connection of the client that the fault affects. Other belongs to a client without faults, and
	// Operator to a client that does not use the recipe.
	Conn, Other, Operator *zk.Conn
	// Ctx is the context of the client. Some faults cancel it.
	Ctx    context.Context
	cancel context.CancelCauseFunc

	Fault Fault

	script Script
	k      int
	bubble string // the text by which stacks identify the bubble of the run
	holds  map[string][]held
	others []<-chan struct{}
}

// held is a grant that the method Held has recorded: a hold of a lock, a leadership, or a claim of an item.
type held struct {
	grant
	ofClient bool
}

type grant interface {
	Err() error
	Token() int64
}

func newRun(t *testing.T, s Script, f Fault, k int) *Run {
	r := &Run{bubble: currentBubble(), script: s, Fault: f, k: k, Server: zktest.Start(t), holds: map[string][]held{}}
	r.Conn, r.Other, r.Operator = bubble.Connect(t, r.Server, Timeout), bubble.Connect(t, r.Server, Timeout), bubble.Connect(t, r.Server, Timeout)
	r.Ctx, r.cancel = context.WithCancelCause(context.Background())
	return r
}

func (r *Run) run() {
	session := r.Conn.SessionID()
	counting := true
	r.Server.Before(zktest.Match{}, func(q *zktest.Request) zktest.Verdict {
		if q.Session != session || q.Op == zktest.OpPing || q.Op == zktest.OpConnect || q.Op == zktest.OpCloseSession {
			return zktest.Pass(q)
		}
		r.mu.Lock()
		if counting {
			r.requests++
		}
		now := counting && r.requests == r.k
		if now {
			r.xid, r.at = q.Xid, strings.TrimSpace(q.Op.String()+" "+q.Path)
		}
		r.mu.Unlock()
		if now && r.Fault.Before != nil {
			return r.Fault.Before(r, q)
		}
		return zktest.Pass(q)
	})
	r.Server.After(zktest.Match{Session: session}, func(q *zktest.Request) zktest.Verdict {
		r.mu.Lock()
		now := r.xid != 0 && q.Xid == r.xid
		if now {
			r.xid = 0
		}
		r.mu.Unlock()
		if now && r.Fault.After != nil {
			return r.Fault.After(r, q)
		}
		return zktest.Pass(q)
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.script.Use(r)
		for _, other := range r.others {
			<-other
		}
	}()
	select {
	case <-ended:
	case <-time.After(10 * hangLimit):
		r.Violate("the script hangs")
	}
	r.mu.Lock()
	counting = false
	r.mu.Unlock()
	r.cancel(nil)
	bubble.Advance(settleTime)
	if !r.Fault.Closes {
		r.requireNoEphemerals("although everything was released")
	}
	for _, conn := range []*zk.Conn{r.Conn, r.Other} {
		conn.Close()
	}
	bubble.Advance(settleTime)
	r.requireNoEphemerals("although the sessions have ended")
	r.Operator.Close()
	bubble.Advance(hangLimit) // wait until requests that the server cannot answer have ended with their client
	synctest.Wait()
}

// requireNoEphemerals records a violation for each ephemeral znode, except the znodes of open writers. when is the
// end of the message, and says when the znodes should not exist.
func (r *Run) requireNoEphemerals(when string) {
	for line := range strings.Lines(r.Server.Tree()) {
		if strings.Contains(line, " ephemeral=") && !strings.Contains(line, "_r_") && !strings.Contains(line, "client-") {
			r.Violate("%s exists %s", strings.TrimSpace(line), when)
		}
	}
}

// Try runs an operation of the client that may return the errors of the fault. It records a violation if the
// operation returns another error or hangs, and reports whether the operation has succeeded.
func (r *Run) Try(operation string, f func(ctx context.Context) error) bool {
	return r.runOperation(r.Ctx, operation, f)
}

// Once is like Try, for an operation that cannot be repeated if its reply is lost. Such an operation may also
// return ErrUnconfirmed; then unknown is true.
func (r *Run) Once(operation string, f func(ctx context.Context) error) (ok, unknown bool) {
	ok = r.runOperation(r.Ctx, operation, func(ctx context.Context) error {
		err := f(ctx)
		if unknown = errors.Is(err, leaderelection.ErrUnconfirmed); unknown && r.k > 0 {
			return nil
		}
		return err
	})
	return ok && !unknown, unknown
}

// Finish runs an operation of the client that removes something. No fault cancels this operation. It may return
// ErrUnconfirmed while the connection is down, because the removal then continues.
func (r *Run) Finish(operation string, f func() error) {
	r.runOperation(context.Background(), operation, func(context.Context) error {
		err := f()
		if r.k > 0 && connection.CodeOf(err) == nil && errors.Is(err, leaderelection.ErrUnconfirmed) {
			return nil
		}
		return err
	})
}

func (r *Run) runOperation(ctx context.Context, operation string, f func(ctx context.Context) error) bool {
	err, hangs := callWithLimit(ctx, f)
	switch {
	case hangs:
		r.Violate("%s hangs", operation)
	case errors.Is(err, context.DeadlineExceeded):
		r.Violate("%s does not end: %v", operation, err)
	case err == nil:
	case r.k == 0:
		r.Violate("%s: %v", operation, err)
	default:
		if reason := r.Fault.explainRejection(err); reason != "" {
			r.Violate("%s: %s: %v", operation, reason, err)
		}
	}
	return err == nil && !hangs
}

// callWithLimit calls f, and reports whether f hangs: f has not returned long after its context is done.
func callWithLimit(ctx context.Context, f func(ctx context.Context) error) (err error, hangs bool) {
	ctx, cancel := context.WithTimeout(ctx, hangLimit)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- f(ctx) }()
	select {
	case err := <-result:
		return err, false
	case <-time.After(2 * hangLimit):
		return nil, true
	}
}

// Require runs an operation of the client without faults. It records a violation unless the operation succeeds.
func (r *Run) Require(operation string, f func(ctx context.Context) error) bool {
	err, hangs := callWithLimit(context.Background(), f)
	if hangs {
		r.Violate("%s of a client without faults hangs", operation)
	} else if err != nil {
		r.Violate("%s of a client without faults: %v", operation, err)
	}
	return err == nil && !hangs
}

// Also calls f in the background, with clients without faults. The run waits until f has returned.
func (r *Run) Also(f func()) {
	done := make(chan struct{})
	r.others = append(r.others, done)
	go func() {
		defer close(done)
		f()
	}()
}

// Background calls f in a goroutine that may end after the script.
func (r *Run) Background(f func()) { go f() }

// Exists records a violation if a znode does not exist.
func (r *Run) Exists(path string) { r.verifyExistence(path, true) }

// Absent records a violation if a znode exists.
func (r *Run) Absent(path string) { r.verifyExistence(path, false) }

func (r *Run) verifyExistence(path string, want bool) {
	if exists, _, err := r.Operator.Exists(path); err == nil && exists != want {
		r.Violate("%s exists: %v, want %v", path, exists, want)
	}
}

// Await waits until f returns true, and reports whether f has done so. After a minute of fake time, Await records a
// violation.
func (r *Run) Await(what string, f func() bool) bool {
	for end := time.Now().Add(hangLimit); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Violate("%s: condition is not true after %v", what, hangLimit)
			return false
		}
	}
	return true
}

// Held records that a client holds a grant with the given name. It records a violation if more than most grants
// with this name are valid, or if the token of the new grant is not greater than the earlier tokens.
func (r *Run) Held(name string, most int, ofClient bool, g grant) {
	r.mu.Lock()
	before := r.holds[name]
	r.holds[name] = append(before, held{g, ofClient})
	r.mu.Unlock()
	if g.Err() != nil {
		return
	}
	valid := 1
	for _, h := range before {
		if h.Err() == nil && !(h.ofClient && r.Fault.Ends) {
			valid++
		}
		if most == 1 && h.Token() >= g.Token() {
			r.Violate("%s: token %d follows token %d", name, g.Token(), h.Token())
		}
	}
	if valid > most {
		r.Violate("%s: %d holders at the same time, at most %d are permitted", name, valid, most)
	}
}
