package barrier

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Leave leaves the round, and blocks until all of its participants have left or their
// sessions have ended. If it returns an error, for instance because the context was done,
// it may be called again and continues to wait. A participant whose znode is lost has
// already left; Leave still waits for the others.
func (r *Round) Leave(ctx context.Context) error {
	return recipe.Fail("leave double barrier", r.double.at.Path, r.leave(ctx))
}

func (r *Round) leave(ctx context.Context) error {
	if err := r.node.Remove(ctx, ErrLeft); err != nil {
		return err
	}
	sub := r.double.at.Subscribe()
	defer sub.Close()
	return r.double.awaitEnd(ctx, sub, r.number)
}

// awaitEnd waits until a round that has begun is over, and ends it when nobody is left
// in it: all of its participants may have died.
func (d *Double) awaitEnd(ctx context.Context, sub *session.Subscription, number int64) error {
	ready := watch.NewReader(d.at.Conn, sub, d.ready(number), watch.Data)
	for {
		names, err := d.inRound(ctx, ready)
		if names == nil || err != nil {
			return err
		}
		one, err := d.watchOne(ctx, sub, number, names)
		if err != nil {
			return err
		}
		if one == nil {
			if err := d.end(ctx, number); err != nil {
				return err
			}
			continue
		}
		if _, err := ready.WaitEither(ctx, one, nil); err != nil {
			return err
		}
	}
}

// inRound returns the participants of a round, nil if it has ended.
func (d *Double) inRound(ctx context.Context, ready *watch.Reader) ([]string, error) {
	found, err := ready.Read(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		// The server of a new session may lag behind the one of the old.
		err = request.Retry(ctx, d.at.Conn, func() error {
			_, err := d.at.Conn.Sync(d.at.Path)
			return err
		})
		if err == nil {
			found, err = ready.Read(ctx)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return strings.Split(string(found.Data), "\n"), err
}

// watchOne watches one of names that is still present, and returns nil if all have left.
// The choice is that of the Double, so that not all of them are woken by each departure.
func (d *Double) watchOne(ctx context.Context, sub *session.Subscription, number int64, names []string) (*watch.Reader, error) {
	for {
		present, err := d.present(ctx, number)
		if err != nil {
			return nil, err
		}
		present = slices.DeleteFunc(present, func(name string) bool { return !slices.Contains(names, name) })
		if len(present) == 0 {
			return nil, nil
		}
		one := watch.NewReader(d.at.Conn, sub, path.Join(d.at.Path, present[d.choice%len(present)]), watch.Data)
		if _, err := one.Read(ctx); !errors.Is(err, zk.ErrNoNode) {
			return one, err
		}
	}
}

// end ends a round. When somebody else was quicker, that is seen by whoever reads.
func (d *Double) end(ctx context.Context, number int64) error {
	at, err := d.next(ctx)
	if err != nil || at.number != number {
		return err
	}
	err = request.Retry(ctx, d.at.Conn, func() error {
		_, err := d.at.Conn.Multi(
			&zk.SetDataRequest{Path: d.at.Path, Data: strconv.AppendInt(nil, number+1, 10), Version: at.version},
			&zk.DeleteRequest{Path: d.ready(number), Version: -1},
		)
		return err
	})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// round is the one that comes next, or is on.
type round struct {
	number  int64
	version int32 // of the barrier's node
}

func (d *Double) next(ctx context.Context) (round, error) {
	return request.Read(ctx, d.at.Conn, func() (round, error) {
		data, stat, err := request.Get(d.at.Conn, d.at.Path)
		return d.parse(data, stat, err)
	})
}

func (d *Double) parse(data []byte, stat *zk.Stat, err error) (round, error) {
	if err != nil {
		return round{}, err
	}
	if len(data) == 0 {
		return round{0, stat.Version}, nil
	}
	number, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return round{}, fmt.Errorf("data of the znode is not a round number: %w", err)
	}
	return round{number, stat.Version}, nil
}

func prefix(number int64) string { return strconv.FormatInt(number, 10) + "-" }

func (d *Double) ready(number int64) string {
	return path.Join(d.at.Path, fmt.Sprintf("ready-%d", number))
}

// participants are the names of those who take part in a round that has begun and is
// not over.
func (d *Double) participants(ctx context.Context, number int64) (names []string, begun bool, err error) {
	data, err := request.Read(ctx, d.at.Conn, func() ([]byte, error) {
		data, _, err := request.Get(d.at.Conn, d.ready(number))
		return data, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return strings.Split(string(data), "\n"), true, nil
}

// present are the names of those who stand at the barrier for a round, in the order of
// their names.
func (d *Double) present(ctx context.Context, number int64) ([]string, error) {
	names, err := request.Read(ctx, d.at.Conn, func() ([]string, error) {
		names, _, err := request.Children(d.at.Conn, d.at.Path)
		return names, err
	})
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix(number)) })
	slices.Sort(names)
	return names, err
}
