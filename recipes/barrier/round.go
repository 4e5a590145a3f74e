package barrier

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Leave leaves the round, and blocks until all of its participants have left or their
// sessions have ended. If it returns an error, for instance because the context was done,
// it may be called again and continues to wait. A participant whose znode is lost has
// already left; Leave still waits for the others.
func (r *Round) Leave(ctx context.Context) error {
	return r.double.setup.Fail("leave double barrier", r.double.setup.Path, r.leave(ctx))
}

func (r *Round) leave(ctx context.Context) error {
	// Remove the znode even if ctx ends: ctx may be the context of the round, which ends now.
	removing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit.Confirm, limit.ErrConfirm)
	defer cancel()
	err := r.node.Remove(removing, recipes.ErrReleased)
	if errors.Is(err, limit.ErrConfirm) && ctx.Err() == nil {
		err = r.node.Remove(ctx, recipes.ErrReleased) // wait for the removal that has begun above
	}
	if err != nil {
		return err
	}
	sub := r.double.setup.Subscribe()
	defer sub.Close()
	return r.double.awaitEnd(ctx, sub, r.number)
}

// awaitEnd blocks until round number, which has begun, is over. If no participant is left, awaitEnd itself ends
// the round, because all other participants may have crashed.
func (d *Double) awaitEnd(ctx context.Context, sub *connection.Subscription, number int64) error {
	ready := watch.NewReader(d.setup.Conn, sub, d.readyPath(number), watch.Data)
	for {
		names, err := d.readRound(ctx, ready)
		if names == nil || err != nil {
			return err
		}
		participant, err := d.watchParticipant(ctx, sub, names)
		if err != nil {
			return err
		}
		if participant == nil {
			if err := d.endRound(ctx, number); err != nil {
				return err
			}
			continue
		}
		if _, err := ready.WaitEither(ctx, participant, nil); err != nil {
			return err
		}
	}
}

// readRound returns the participants of a round that has begun. It returns nil if the round has ended.
func (d *Double) readRound(ctx context.Context, ready *watch.Reader) ([]string, error) {
	found, err := readConfirmed(ctx, d.setup, ready)
	if connection.IsNoNode(ctx, err) {
		return nil, nil
	}
	return strings.Split(string(found.Data), "\n"), err
}

// watchParticipant watches one of the participants that are still present. It returns nil if all have left.
func (d *Double) watchParticipant(ctx context.Context, sub *connection.Subscription, names []string) (*watch.Reader, error) {
	for {
		present, err := d.presentParticipants(ctx)
		if err != nil {
			return nil, err
		}
		present = slices.DeleteFunc(present, func(name string) bool { return !slices.Contains(names, name) })
		if len(present) == 0 {
			return nil, nil
		}
		participant := watch.NewReader(d.setup.Conn, sub, path.Join(d.setup.Path, present[d.choice%len(present)]), watch.Data)
		if _, err := participant.Read(ctx); !errors.Is(err, zk.ErrNoNode) {
			return participant, err
		}
	}
}

// endRound ends a round. It returns nil also if another client was faster, so the caller must read the state of the
// barrier again afterwards.
func (d *Double) endRound(ctx context.Context, number int64) error {
	current, err := d.currentRound(ctx)
	if err != nil || current.number != number {
		return err
	}
	err = connection.Retry(ctx, d.setup.Conn, func() error {
		_, err := d.setup.Conn.Multi(
			&zk.SetDataRequest{Path: d.setup.Path, Data: strconv.AppendInt(nil, number+1, 10), Version: current.version},
			&zk.DeleteRequest{Path: d.readyPath(number), Version: -1},
		)
		return err
	})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// roundState describes the current round, or the next round if none has begun.
type roundState struct {
	number  int64
	version int32 // the version of the data of the barrier's znode
	// arrivals is the zxid of the last change of the children, which increases with each participant that joins.
	// The name of the znode of the next participant begins with it.
	arrivals int64
}

func (d *Double) currentRound(ctx context.Context) (roundState, error) {
	return connection.Read(ctx, d.setup.Conn, func() (r roundState, err error) {
		data, stat, err := connection.Get(d.setup.Conn, d.setup.Path)
		if err != nil {
			return r, err
		}
		r.version, r.arrivals = stat.Version, stat.Pzxid
		if len(data) > 0 {
			if r.number, err = strconv.ParseInt(string(data), 10, 64); err != nil {
				err = fmt.Errorf("data is not the number of a round: %w", err)
			}
		}
		return r, err
	})
}

// participantName returns a unique name for a new participant. The names sort in the order of the arrivals.
func participantName(arrivals int64) string {
	return fmt.Sprintf("%019d-%s", arrivals, strings.ToLower(crand.Text()))
}

// isParticipant reports whether name is the name of a participant's znode. A round must not wait for other
// children of the barrier, because they would never leave.
func isParticipant(name string) bool { return participants.MatchString(name) }

var participants = regexp.MustCompile(`^[0-9]{19}-[a-z2-7]{26,}$`)

// readyPath returns the path of the znode that exists while round number has begun and is not over.
func (d *Double) readyPath(number int64) string {
	return path.Join(d.setup.Path, fmt.Sprintf("ready-%d", number))
}

// presentParticipants returns the names of the participants' znodes, in the order of their arrivals.
func (d *Double) presentParticipants(ctx context.Context) ([]string, error) {
	names, err := connection.List(ctx, d.setup.Conn, d.setup.Path)
	names = slices.DeleteFunc(names, func(name string) bool { return !isParticipant(name) })
	slices.Sort(names)
	return names, err
}
