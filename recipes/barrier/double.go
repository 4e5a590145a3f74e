package barrier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/ephemeral"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Double is a double barrier: n participants begin a round together and end it together.
// All participants must use the same n, and must be allowed to read each other's znodes.
// Its methods may be called from any goroutine.
type Double struct {
	setup *recipe.Setup
	n     int
	// choice selects the participant that awaitEnd watches. Each Double chooses it at random, so that the departure
	// of one participant does not wake all others.
	choice int
}

// NewDouble returns the double barrier of n participants at path, which does not need to
// exist. It sends no request. n must be at least 1, and small enough that one transaction
// can name all participants: about 8,000 with a path of 20 bytes. Errors:
// [recipes.ErrInvalid].
func NewDouble(conn *zk.Conn, path string, n int, opts ...Option) (*Double, error) {
	s, err := recipe.New(conn, path, opts, Option.ApplyBarrier)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("%w: %d participants: must be at least 1", recipes.ErrInvalid, n)
	}
	if most := mostParticipants(path); n > most {
		return nil, fmt.Errorf("%w: %d participants at %s: the limit is %d", recipes.ErrInvalid, n, path, most)
	}
	return &Double{setup: s, n: n, choice: rand.Int()}, nil
}

// mostParticipants returns how many participants fit into the transaction that begins a round. A server
// closes the connection if a request is larger than maxRequest.
func mostParticipants(path string) int {
	const (
		maxRequest   = 1<<20 - 1 // the default limit of a server, jute.maxbuffer
		rest         = 4 << 10   // the bytes that the transaction needs besides the checks of the participants
		longestName  = 19 + 1 + 26
		checkRequest = 9 + 4 + 4 // the header, the length of the path and the version of one check
	)
	perParticipant := longestName + 1 + checkRequest + len(path) + 1 + longestName
	return (maxRequest - rest - 2*len(path)) / perParticipant
}

// Round represents a participant in a round that has begun. Its methods may be called from
// any goroutine. The participant must call Leave, even if its znode is lost.
type Round struct {
	double *Double
	number int64
	node   *ephemeral.Node
}

// Number returns the number of the round: 0 for the first round, and one more for each
// later round.
func (r *Round) Number() int64 { return r.number }

// Done returns a channel that is closed when the participant leaves or its znode is lost.
// From then on the other participants may end the round without it.
func (r *Round) Done() <-chan struct{} { return r.node.Grant().Context().Done() }

// Err returns nil while the participant is in the round, and afterwards the reason why it
// is not: [recipes.ErrReleased], [recipes.ErrLeaseExpired], [recipes.ErrSessionExpired],
// [recipes.ErrDeleted] or [recipes.ErrConnClosed], to be tested with errors.Is.
func (r *Round) Err() error { return r.node.Grant().Err() }

// Token returns a number that identifies the participant and increases from round to round:
// the creation zxid of its znode.
func (r *Round) Token() int64 { return r.node.Grant().Token() }

// Deadline returns the time at which the participant's lease expires unless it is renewed.
func (r *Round) Deadline() time.Time { return r.node.Grant().Deadline() }

// Context returns a context that is done when Done is closed. Its cause is the error that
// Err returns.
func (r *Round) Context() context.Context { return r.node.Grant().Context() }

// Enter joins the barrier, and blocks until n participants have joined and a round with them begins.
// Participants enter in the order in which they have joined; a participant that is not needed for a round
// keeps its place for the next. If the participant's znode is lost before a round begins, for example with
// its session, Enter joins again behind the others. If the context is done first, Enter returns its cause and
// removes the participant's znode. Other errors: [recipes.ErrConnClosed], [recipes.ErrPermission].
func (d *Double) Enter(ctx context.Context) (*Round, error) {
	passed := observe(d.setup)
	r, err := d.enter(ctx)
	err = d.setup.Fail("enter double barrier", d.setup.Path, err)
	passed(r, err)
	return r, err
}

func (d *Double) enter(ctx context.Context) (*Round, error) {
	sub := d.setup.Subscribe()
	defer sub.Close()
	return recipe.AcrossSessions(ctx, isLost, func() (*Round, error) { return d.join(ctx, sub) })
}

// isLost reports whether err means that the znode of a participant does not exist any more. zk.ErrNoNode means that the
// znode of the barrier does not exist, and so has no children.
func isLost(err error) bool {
	return errors.Is(err, zk.ErrNoNode) || errors.Is(err, connection.ErrSessionExpired) || errors.Is(err, connection.ErrLeaseExpired) || errors.Is(err, connection.ErrDeleted)
}

// join creates the znode of a participant, and blocks until a round with this participant begins. If isLost
// reports true for the error, the znode does not exist any more, and the caller may join again.
func (d *Double) join(ctx context.Context, sub *connection.Subscription) (*Round, error) {
	if err := connection.MakeZnode(ctx, d.setup.Conn, d.setup.Path, d.setup.ACL, false); err != nil {
		return nil, err
	}
	current, err := d.currentRound(ctx)
	if err != nil {
		return nil, err
	}
	node, err := ephemeral.Create(ctx, d.setup, path.Join(d.setup.Path, participantName(current.arrivals)), nil, func(*ephemeral.TakenError) error {
		// The znode exists and belongs to another session. Because its name is unique, an earlier session of this
		// client has created it.
		return connection.ErrSessionExpired
	})
	if err != nil {
		return nil, err
	}
	number, err := d.awaitRound(ctx, sub, node)
	if err == nil {
		return &Round{d, number, node}, nil
	}
	removing, cancel := ctx, func() {}
	if ctx.Err() != nil || !isLost(err) {
		removing, cancel = context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	}
	defer cancel()
	if removal := node.Remove(removing, err); removal != nil {
		if isLost(err) {
			return nil, removal // do not join again: two znodes would count as two participants
		}
		d.setup.Log.Warn("removal of the znode is not confirmed yet: retrying", "path", node.Path(), "err", removal)
	}
	return nil, err
}

// awaitRound blocks until a round begins whose participants include the one with the znode node. It returns the
// number of this round.
func (d *Double) awaitRound(ctx context.Context, sub *connection.Subscription, node *ephemeral.Node) (int64, error) {
	for {
		current, err := d.currentRound(ctx)
		if err != nil {
			return 0, err
		}
		names, err := d.awaitBegin(ctx, sub, current.number, node)
		if err != nil || slices.Contains(names, path.Base(node.Path())) {
			return current.number, err
		}
		if err := d.awaitEnd(ctx, sub, current.number); err != nil {
			return 0, err
		}
	}
}

// removeLimit is how long Enter waits for the removal of its znode before it returns an error.
const removeLimit = time.Second

// awaitBegin begins round number as soon as there are enough participants, or waits until another participant has
// begun the round. It returns the participants of the round, or none if the round is already over.
func (d *Double) awaitBegin(ctx context.Context, sub *connection.Subscription, number int64, node *ephemeral.Node) ([]string, error) {
	ready := watch.NewReader(d.setup.Conn, sub, d.readyPath(number), watch.DataOrCreation)
	for {
		// Set the watch first, so that it fires if the round begins now. If the round has begun and ended
		// before, the number of the current round is greater.
		found, err := ready.Read(ctx)
		if err != nil {
			return nil, err
		}
		if found.Stat != nil {
			return strings.Split(string(found.Data), "\n"), nil
		}
		current, err := d.currentRound(ctx)
		if err != nil || current.number != number {
			return nil, err
		}
		present, err := d.presentParticipants(ctx)
		if err != nil {
			return nil, err
		}
		if len(present) >= d.n {
			if err := d.beginRound(ctx, current, present[:d.n]); err != nil {
				return nil, err
			}
			continue
		}
		grant := node.Grant()
		if changed, err := ready.Wait(ctx, grant.Context().Done()); err != nil {
			return nil, err
		} else if !changed {
			return nil, grant.Err()
		}
	}
}

// beginRound begins a round with the participants names. The transaction also checks that the
// znode of each participant exists: a participant that gave up after it was listed must not
// count. If the transaction is rejected, because another client has begun the round or because a
// participant has left, beginRound returns nil and the caller reads again.
func (d *Double) beginRound(ctx context.Context, r roundState, names []string) error {
	ops := []any{
		&zk.CheckVersionRequest{Path: d.setup.Path, Version: r.version},
		&zk.CreateRequest{Path: d.readyPath(r.number), Data: []byte(strings.Join(names, "\n")), Acl: d.setup.ACL},
	}
	for _, name := range names {
		ops = append(ops, &zk.CheckVersionRequest{Path: path.Join(d.setup.Path, name), Version: -1})
	}
	if _, err := txn.Size(ops); err != nil {
		return fmt.Errorf("%w: %d participants: %w", connection.ErrInvalid, len(names), err)
	}
	err := connection.Retry(ctx, d.setup.Conn, func() error {
		_, err := d.setup.Conn.Multi(ops...)
		return err
	})
	if errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
