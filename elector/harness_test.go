package elector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

var errBoom = errors.New("boom")

// world is a test of an Elector on a scripted backend, in fake time. Handlers write
// down that they were called, and do what the test says.
type world struct {
	*testing.T
	e       *Elector
	backend *backend
	stop    context.CancelFunc
	done    chan struct{} // Run has returned
	err     error         // what it returned
	began   time.Time

	mu     sync.Mutex
	events []string
}

// play has an Elector run in a bubble until f returns. set may change its fields first.
func play(t *testing.T, set func(w *world), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if set != nil {
			set(w)
		}
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		go func() {
			defer close(w.done)
			w.err = w.e.Run(ctx)
		}()
		defer func() {
			stop()
			<-w.done
		}()
		synctest.Wait()
		f(w)
	})
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, backend: &backend{}, done: make(chan struct{}), began: time.Now()}
	w.e = &Elector{
		NewCandidate: w.backend.newCandidate,
		Begin:        w.handler("begin"),
		End:          w.handler("end"),
		Error: func(_ context.Context, l *leaderelection.Leadership, err error) error {
			w.note("error %s", tokenOf(l))
			return nil
		},
	}
	return w
}

func tokenOf(l *leaderelection.Leadership) string {
	if l == nil {
		return "-"
	}
	return fmt.Sprint(l.Token())
}

// handler notes its call, returns the errors one after the other, and then nil.
func (w *world) handler(name string, results ...error) func(context.Context, *leaderelection.Leadership) error {
	return func(_ context.Context, l *leaderelection.Leadership) error {
		lost := ""
		if l.Err() != nil {
			lost = " lost"
		}
		w.note("%s %d%s", name, l.Token(), lost)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(results) == 0 {
			return nil
		}
		err := results[0]
		results = results[1:]
		return err
	}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%v ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// happened requires that exactly this was noted so far.
func (w *world) happened(events ...string) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(w, events, w.events)
}

func (w *world) is(s State) {
	w.Helper()
	synctest.Wait()
	require.Equal(w, s, w.e.Current().State)
}

// leads has the backend say LEADER, and lets the handlers return.
func (w *world) leads() *leaderelection.Leadership {
	l := w.backend.leads()
	synctest.Wait()
	return l
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// returned requires that Run has returned by now.
func (w *world) returned() error {
	w.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		return w.err
	default:
		require.Fail(w, "Run has not returned")
		return nil
	}
}

func (w *world) runs() {
	w.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		require.Fail(w, "Run has returned", "%v", w.err)
	default:
	}
}
