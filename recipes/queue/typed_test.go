package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestTyped_DecodesValues checks that a handler receives the value that was put, that an item in another format
// becomes a dead letter, and that a value that cannot be encoded is not put.
func TestTyped_DecodesValues(t *testing.T) {
	type job struct{ Tenant string }
	run(t, func(h *bubble.Test) {
		q := queueOn(h, h.Connect(), config{})
		jobs := Of(q, recipes.JSONCodec[job]())
		_, err := jobs.Put(h.Context(), job{"a"})
		require.NoError(h, err)
		putItems(h, q, "{")
		ctx, cancel := context.WithCancel(h.Context())
		var received []job
		result := make(chan error, 1)
		go func() {
			result <- jobs.Handle(ctx, func(_ context.Context, j job, i *Item) error {
				require.NotEmpty(h, i.ID())
				received = append(received, j)
				return nil
			})
		}()
		bubble.Advance(time.Minute)
		cancel()
		require.NoError(h, <-result)
		require.Equal(h, []job{{"a"}}, received)
		letters, err := q.DeadLetters(h.Context())
		require.NoError(h, err)
		require.Len(h, letters, 1)
		require.Contains(h, letters[0].Reason, recipes.ErrFormat.Error())
		require.Equal(h, "{", string(letters[0].Parts[0]))

		failure := errors.New("failure")
		invalid := Of(q, recipes.Codec[job]{Encode: func(job) ([]byte, error) { return nil, failure }})
		_, err = invalid.Put(h.Context(), job{})
		require.ErrorIs(h, err, failure)
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}
