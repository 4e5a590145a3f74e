package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ending is a context that ends when Done is first called, a second after that: what the
// caller waits for besides has come by then.
type ending struct {
	context.Context
	err error
}

func (e *ending) Err() error { return e.err }

func (e *ending) Done() <-chan struct{} {
	time.Sleep(time.Second)
	e.err = context.Canceled
	c := make(chan struct{})
	close(c)
	return c
}

// Take returns an item that was claimed for it, also if the context ends at the same time:
// nothing else would return or acknowledge the item.
func TestTakeAtTheEndOfTheContext(t *testing.T) {
	play(t, func(w *world) {
		q := w.queue()
		for i := range 32 { // whether Take sees the item or the end first is random
			w.put(q, fmt.Sprint(i))
			item, err := q.Take(&ending{Context: w.Context()})
			require.NoError(w, err)
			require.Equal(w, fmt.Sprint(i), string(item.Data()))
			require.NoError(w, item.Ack(w.Context()))
		}
	})
}
