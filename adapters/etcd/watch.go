package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// watch waits for something to happen to one key, or below it. It tells once: at which revision
// that was, or 0 if it cannot say, because the server has no leader, the history was compacted,
// or whatever else ends a watch. Who owns it looks then, and makes another.
type watch struct {
	key    string
	cancel context.CancelFunc
	told   chan int64 // of capacity one
	done   chan struct{}
}

// newWatch watches key from a revision on, that after the last look.
func newWatch(ctx context.Context, client *clientv3.Client, key string, revision int64, opts ...clientv3.OpOption) *watch {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	w := &watch{key: key, cancel: cancel, told: make(chan int64, 1), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer cancel()
		opts := append([]clientv3.OpOption{clientv3.WithRev(revision)}, opts...)
		// Watch itself blocks until a server has answered.
		for answer := range client.Watch(ctx, key, opts...) {
			if answer.Err() != nil {
				break
			}
			if n := len(answer.Events); n > 0 {
				w.told <- answer.Events[n-1].Kv.ModRevision
				return
			}
		}
		w.told <- 0
	}()
	return w
}

// deletion watches for the end of a key only.
func deletion(ctx context.Context, client *clientv3.Client, key string, revision int64) *watch {
	return newWatch(ctx, client, key, revision, clientv3.WithFilterPut())
}

// events is the channel of a watch that may be nil.
func (w *watch) events() <-chan int64 {
	if w == nil {
		return nil
	}
	return w.told
}

// end ends the watch and waits for that. It may be nil.
func (w *watch) end() {
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// lookAgain is the interval at which state is read although no watch has fired, because a watch
// may have stopped without an error.
const lookAgain = 10 * time.Second

// await blocks until there is a reason to read the state again: one of two watches has fired,
// or lookAgain has passed. It pauses after a watch that has failed. The second watch may be nil.
// The error is errClosed or the cause of ctx.
func await(ctx context.Context, client *clientv3.Client, first, second *watch) error {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	var revision int64
	select {
	case revision = <-first.events():
	case revision = <-second.events():
	case <-timer.C:
		return nil
	case <-client.Ctx().Done():
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if revision == 0 {
		return request.Pause(ctx, retry)
	}
	return nil
}
