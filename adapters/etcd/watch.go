package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
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
