package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Subscribe implements [changefeed.Store]. The watch delivers the record, so followers do not read
// while heartbeats arrive.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.runner.Subscribe(ctx)
}

// openWatch opens a watch of the Lease, which begins with its current state.
func (s *Store) openWatch(ctx context.Context) (watch.Interface, error) {
	return s.client.Get().Namespace(s.namespace).Resource("leases").MaxRetries(0).
		Param("watch", "true").Param("fieldSelector", "metadata.name="+s.name).Watch(ctx)
}

// minWatch is the shortest duration of a watch that may end without being reported as an error: API servers
// regularly end watches after some minutes.
const minWatch = time.Second

// errWatchEnded is the error of a watch that the API server has ended before minWatch.
var errWatchEnded = errors.New("the API server has ended the watch")

// watch is a [store.WatchFunc] that reports the records from a watch of the API server.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	start := time.Now()
	w, err := s.openWatch(ctx)
	if err != nil {
		return s.runner.WrapError(ctx, "watch "+s.lease(), err)
	}
	defer w.Stop()
	report(changefeed.Event{})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.ResultChan():
			s.answered.Store(time.Now().UnixNano())
			err := errWatchEnded
			if ok {
				err = s.handleEvent(e, report)
			}
			switch {
			case err == nil:
			case errors.Is(err, errWatchEnded) && time.Since(start) > minWatch:
				return nil
			default:
				return s.runner.WrapError(ctx, "watch "+s.lease(), err)
			}
		}
	}
}

// handleEvent reports the state of the Lease in an event. It returns errWatchEnded if the API server does not have
// the changes since the last event any more (status 410), so that the record must be read again.
func (s *Store) handleEvent(e watch.Event, report func(changefeed.Event)) error {
	switch e.Type {
	case watch.Added, watch.Modified:
		l, ok := e.Object.(*coordination.Lease)
		if !ok {
			return fmt.Errorf("the API server has sent a %T instead of a Lease", e.Object)
		}
		r, err := decode(l)
		switch {
		case err == nil:
			report(changefeed.Event{Record: r})
		case errors.Is(err, changefeed.ErrNoRecord):
			report(changefeed.Event{Missing: true})
		default:
			return err
		}
	case watch.Deleted:
		report(changefeed.Event{Missing: true})
	case watch.Error:
		err := apierrors.FromObject(e.Object)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return fmt.Errorf("%w: %w", errWatchEnded, err)
		}
		return err
	case watch.Bookmark: // A bookmark reports only the progress of the watch.
	}
	return nil
}
