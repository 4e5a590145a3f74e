package barrier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// Leave leaves the round and waits until all of its participants have left or are gone.
// It may be called again, after the end of a context for instance, and goes on waiting.
// A place that is lost has been left already; Leave waits for the others all the same.
func (r *Round) Leave(ctx context.Context) error {
	return setup.Fail("leave double barrier", r.double.at.Path, r.leave(ctx))
}

func (r *Round) leave(ctx context.Context) error {
	if err := r.node.Remove(ctx, ErrLeft); err != nil {
		return err
	}
	sub := session.Subscribe(r.double.at.Conn, r.double.at.Timeout)
	defer sub.Close()
	return r.double.awaitEnd(ctx, sub, r.number)
}

// awaitEnd waits until a round that has begun is over, and ends it when nobody is left
// in it: all of its participants may have died.
func (d *Double) awaitEnd(ctx context.Context, sub *session.Subscription, number int64) error {
	for {
		epoch := sub.State().Epoch
		names, ended, doubt, err := d.watchEnd(ctx, number)
		if err != nil || ended == nil {
			return err
		}
		gone, doubtOne, err := d.watchOne(ctx, number, names)
		if err != nil {
			return err
		}
		if gone == nil {
			if err := d.end(ctx, number); err != nil {
				return err
			}
			continue
		}
		for again := false; !again; {
			select {
			case <-ended:
				again = true
			case <-gone:
				again = true
			case <-doubt:
				again = true
			case <-doubtOne:
				again = true
			case <-sub.Changed():
				state := sub.State()
				if state.Closed {
					return sentinel.ErrConnClosed
				}
				if again = state.Up && state.Epoch != epoch; again {
					d.left.forget()
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// watchEnd returns the participants of a round and a watch that fires when it ends;
// nil when it has. doubt is that of watches.
func (d *Double) watchEnd(ctx context.Context, number int64) (names []string, ended <-chan zk.Event, doubt <-chan time.Time, err error) {
	left := d.left.of(d.ready(number))
	type answer struct {
		names []string
		ended <-chan zk.Event
	}
	get := func() (answer, error) {
		var data []byte
		var err error
		watch := left
		if left != nil {
			data, _, err = d.at.Conn.Get(d.ready(number))
		} else {
			data, _, watch, err = d.at.Conn.GetW(d.ready(number))
		}
		return answer{strings.Split(string(data), "\n"), watch}, err
	}
	a, err := request.Read(ctx, d.at.Conn, func() (answer, error) {
		a, err := get()
		if errors.Is(err, zk.ErrNoNode) {
			// The server of a new session may lag behind the one of the old.
			if _, err := d.at.Conn.Sync(d.at.Path); err != nil {
				return answer{}, err
			}
			a, err = get()
		}
		return a, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil, nil, nil
	case err != nil:
		return nil, nil, nil, err
	case left != nil:
		return a.names, left, time.After(d.at.Timeout), nil
	}
	d.left.keep(d.ready(number), a.ended)
	return a.names, a.ended, nil, nil
}

// watchOne watches one of names who is left, chosen at random so that not everybody is
// woken by everybody's leaving. It returns nil where none is left. doubt is that of
// watches.
func (d *Double) watchOne(ctx context.Context, number int64, names []string) (gone <-chan zk.Event, doubt <-chan time.Time, err error) {
	for {
		present, err := d.present(ctx, number)
		if err != nil {
			return nil, nil, err
		}
		present = slices.DeleteFunc(present, func(name string) bool { return !slices.Contains(names, name) })
		if len(present) == 0 {
			return nil, nil, nil
		}
		for _, name := range present {
			if gone := d.left.of(path.Join(d.at.Path, name)); gone != nil {
				return gone, time.After(d.at.Timeout), nil
			}
		}
		one := path.Join(d.at.Path, present[rand.IntN(len(present))])
		gone, err := request.Read(ctx, d.at.Conn, func() (<-chan zk.Event, error) {
			_, _, watch, err := d.at.Conn.GetW(one)
			return watch, err
		})
		if err == nil {
			d.left.keep(one, gone)
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return gone, nil, err
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
		data, stat, err := d.at.Conn.Get(d.at.Path)
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
		return round{}, fmt.Errorf("data of the znode are no number of a round: %w", err)
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
		data, _, err := d.at.Conn.Get(d.ready(number))
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

// watchReady returns a watch that fires when a round begins, or ends. doubt is that of
// watches.
func (d *Double) watchReady(ctx context.Context, number int64) (watch <-chan zk.Event, doubt <-chan time.Time, err error) {
	if watch := d.left.of(d.ready(number)); watch != nil {
		return watch, time.After(d.at.Timeout), nil
	}
	watch, err = request.Read(ctx, d.at.Conn, func() (<-chan zk.Event, error) {
		_, _, watch, err := d.at.Conn.ExistsW(d.ready(number))
		return watch, err
	})
	if err == nil {
		d.left.keep(d.ready(number), watch)
	}
	return watch, nil, err
}

// present are the names of those who stand at the barrier for a round, in the order of
// their names.
func (d *Double) present(ctx context.Context, number int64) ([]string, error) {
	names, err := request.Read(ctx, d.at.Conn, func() ([]string, error) {
		names, _, err := d.at.Conn.Children(d.at.Path)
		return names, err
	})
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix(number)) })
	slices.Sort(names)
	return names, err
}
