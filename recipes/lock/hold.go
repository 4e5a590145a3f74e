package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// Hold is a lock that was granted. It is a value to pass on: its methods may be
// called from any goroutine, and any of them may release it. It must be released,
// also when it is lost.
type Hold struct {
	*place
	grant *grant.Grant
	end   context.CancelCauseFunc // of the grant
}

// Path is the path of the znode that stands for the grant. A downgrade changes it.
func (h *Hold) Path() string { return h.own() }

// Token is the fencing token: of two grants of one lock that exclude each other the
// later has the greater token. It is the creation zxid of the contender's znode,
// which grows over the life of an ensemble and starts anew when the ensemble is
// rebuilt without its data.
//
// A resource is protected by the tokens of one lock. Tokens of different elections,
// locks, queues or parts must not be compared, although all are zxids: a greater one
// says nothing there, and a record that both are checked against rejects the holder of
// the smaller one. Keep a record for each, for instance under the path of its node.
func (h *Hold) Token() int64 { return h.grant.Token() }

// Done is closed, once, as soon as the lock is released, lost, or can no longer
// be proven to be held.
func (h *Hold) Done() <-chan struct{} { return h.grant.Context().Done() }

// Err is nil while the lock is held, and afterwards why it is not: [ErrReleased],
// [recipes.ErrLeaseExpired], [recipes.ErrSessionExpired], [recipes.ErrDeleted] or
// [recipes.ErrConnClosed], for errors.Is. ErrDeleted is also the first sign of a
// session's end or a connection's that was closed, where ZooKeeper tells that first.
// Err asks the clock, so that it is right even when this process has only just been
// resumed.
func (h *Hold) Err() error { return h.grant.Err() }

// Deadline is until when the lock is proven to be held at this moment. It moves
// forward while the lock is held, and stays where it was at the end.
func (h *Hold) Deadline() time.Time { return h.grant.Deadline() }

// Context is done when the lock is not held any more; its cause is what Err
// returns. It knows of the hold: a Lock with it, or with one derived from it, that
// would wait for this hold's end returns [ErrReentrant] or [ErrUpgrade].
func (h *Hold) Context() context.Context { return holding{h.grant.Context(), []*Hold{h}} }

// Multi carries out ops as one ZooKeeper transaction that commits only while this
// grant stands, however long this process was stopped and whatever the network
// does. Without ops it is a check, by the ensemble, that it stands. ops are
// *[zk.CreateRequest], *[zk.SetDataRequest], *[zk.DeleteRequest] and
// *[zk.CheckVersionRequest]; the responses are theirs.
//
// The error is [ErrNotHeld] when the lock is not held, and nothing was applied
// then; [recipes.ErrUnconfirmed] when the grant or the connection was lost
// meanwhile, so that the outcome is unknown; or, wrapped, what ZooKeeper has
// against ops, and nothing was applied. It blocks until ZooKeeper answers, and for
// at most two seconds after the end of the grant.
func (h *Hold) Multi(ops ...any) ([]zk.MultiResponse, error) {
	for {
		path := h.own()
		responses, err := h.grant.MultiAll(h.conn, append([]string{path}, h.beside...), ErrNotHeld, ops)
		switch {
		case err == nil:
		case !errors.Is(err, ErrNotHeld):
			err = fmt.Errorf("transaction as holder of %s: %w", path, err)
		case h.grant.Err() == nil && h.moved(path):
			continue // nothing was applied: that znode had gone in a downgrade
		}
		return responses, err
	}
}

// Release gives the lock up. Done is closed before anybody else can have it. It
// returns nil once it is confirmed that nothing of this grant is left, at once
// when the lock is lost already and that is certain; and an error that wraps
// [recipes.ErrUnconfirmed] when the context ends before, or the connection is
// closed. After the end of the context the removal goes on until it is confirmed,
// the session is over, or the connection is closed. It may be called any number of
// times and reports how things stand.
func (h *Hold) Release(ctx context.Context) error {
	h.leave(ErrReleased)
	return setup.Fail("release", h.own(), h.confirm(ctx))
}

// leave ends the grant for the reason err, unless it has ended for another, and
// has the contender leave.
func (h *Hold) leave(err error) {
	if over := h.grant.Err(); over != nil {
		err = over
	}
	h.end(err)
	h.stop(err)
}

// confirm waits until nothing is left of the contender.
func (h *Hold) confirm(ctx context.Context) error {
	if err := h.gone(ctx); err != nil {
		return fmt.Errorf("%w: %w", sentinel.ErrUnconfirmed, sentinel.Refine(err))
	}
	return nil
}
