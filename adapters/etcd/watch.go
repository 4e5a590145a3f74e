package etcd

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// watch waits for the first change of a key, or of the keys below it. It reports the revision of the change, or 0 if
// the watch has failed, for example because the server has no leader or the history was compacted. Its owner then
// reads the election and starts another watch.
type watch struct {
	key    string
	ignore func(*mvccpb.KeyValue) bool // ignore reports whether to skip a change; nil skips none.
	cancel context.CancelFunc
	fired  chan int64    // fired receives the revision, or 0. It has capacity one.
	done   chan struct{} // done is closed when the goroutine has returned.
}

// newWatch watches key, starting at the revision after the last read.
func newWatch(ctx context.Context, client *clientv3.Client, key string, revision int64, opts ...clientv3.OpOption) *watch {
	return (&watch{key: key}).start(ctx, client, revision, opts...)
}

// start starts a goroutine that watches from revision on, until the first change or until ctx is done.
func (w *watch) start(ctx context.Context, client *clientv3.Client, revision int64, opts ...clientv3.OpOption) *watch {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	w.cancel, w.fired, w.done = cancel, make(chan int64, 1), make(chan struct{})
	go func() {
		defer close(w.done)
		defer cancel()
		opts := append([]clientv3.OpOption{clientv3.WithRev(revision)}, opts...)
		// Watch is called here, on a separate goroutine, because it blocks until a server has answered.
		for response := range client.Watch(ctx, w.key, opts...) {
			if response.Err() != nil {
				break
			}
			for _, event := range slices.Backward(response.Events) {
				if w.ignore == nil || !w.ignore(event.Kv) {
					w.fired <- event.Kv.ModRevision
					return
				}
			}
		}
		w.fired <- 0
	}()
	return w
}

// watchLoss watches the candidate's key until it is deleted, created again, or attached to another lease or none.
func watchLoss(ctx context.Context, client *clientv3.Client, key candidateKey, revision int64) *watch {
	return (&watch{key: key.name, ignore: key.isKey}).start(ctx, client, revision)
}

// watchDeletion watches for the deletion of key.
func watchDeletion(ctx context.Context, client *clientv3.Client, key string, revision int64) *watch {
	return newWatch(ctx, client, key, revision, clientv3.WithFilterPut())
}

// firedRevisions returns the channel of the watch, or nil if the watch is nil.
func (w *watch) firedRevisions() <-chan int64 {
	if w == nil {
		return nil
	}
	return w.fired
}

// close ends the watch and waits until its goroutine has returned. The watch may be nil.
func (w *watch) close() {
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// rereadInterval is the interval at which state is read although no watch has fired, because a
// watch may have stopped without an error.
const rereadInterval = 10 * time.Second

// waitForChange blocks until the state should be read again: one of two watches has fired, or
// rereadInterval has passed. It pauses after a watch that has failed. The second watch may be nil.
// The error is errClosed or the cause of ctx.
func waitForChange(ctx context.Context, client *clientv3.Client, first, second *watch) error {
	timer := time.NewTimer(rereadInterval)
	defer timer.Stop()
	var revision int64
	select {
	case revision = <-first.firedRevisions():
	case revision = <-second.firedRevisions():
	case <-timer.C:
		return nil
	case <-client.Ctx().Done():
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if revision == 0 {
		return limit.Pause(ctx, retryPause)
	}
	return nil
}
