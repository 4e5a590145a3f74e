package resign_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/resign"
)

// queue is an election whose candidates leave when they are requested to resign.
type queue struct {
	ids      []string
	requests []string
	rejoin   bool  // candidates that leave join again
	err      error // the error that each request returns
	leave    string
}

func (q *queue) transfer(ctx context.Context, id string) error {
	return resign.Queue{
		Candidates: func(ctx context.Context) (infos []leaderelection.CandidateInfo, err error) {
			for _, id := range q.ids {
				infos = append(infos, leaderelection.CandidateInfo{ID: id})
			}
			return infos, context.Cause(ctx)
		},
		Request: func(_ context.Context, id string) error {
			q.requests = append(q.requests, id)
			if q.err != nil && !errors.Is(q.err, resign.ErrNoCandidate) {
				return q.err
			}
			q.ids = slices.DeleteFunc(q.ids, func(other string) bool { return other == id || other == q.leave })
			if q.rejoin {
				q.ids = append(q.ids, id+"'")
			}
			return q.err
		},
	}.Transfer(ctx, id)
}

// TestQueue_TransferAsksLeaderLast checks that Transfer requests only the candidates ahead of its target to resign,
// the leader last, and returns ErrNotTransferred if the target does not exist or leaves.
func TestQueue_TransferAsksLeaderLast(t *testing.T) {
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		queue    queue
		to       string
		requests []string
		ids      []string
		err      error
	}{
		"leads already":    {queue{ids: []string{"a", "b"}}, "a", nil, []string{"a", "b"}, nil},
		"second":           {queue{ids: []string{"a", "b", "c"}, rejoin: true}, "b", []string{"a"}, []string{"b", "c", "a'"}, nil},
		"last":             {queue{ids: []string{"a", "b", "c"}, rejoin: true}, "c", []string{"b", "a"}, []string{"c", "b'", "a'"}, nil},
		"others have left": {queue{ids: []string{"a", "b", "c"}, err: resign.ErrNoCandidate}, "c", []string{"b", "a"}, []string{"c"}, nil},
		"unknown":          {queue{ids: []string{"a", "b"}}, "c", nil, []string{"a", "b"}, leaderelection.ErrNotTransferred},
		"leaves":           {queue{ids: []string{"a", "b", "c"}, leave: "c"}, "c", []string{"b"}, []string{"a"}, leaderelection.ErrNotTransferred},
		"a request fails":  {queue{ids: []string{"a", "b", "c"}, err: failure}, "c", []string{"b"}, []string{"a", "b", "c"}, failure},
		"empty":            {queue{}, "c", nil, nil, leaderelection.ErrNotTransferred},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.queue.transfer(t.Context(), c.to)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.requests, c.queue.requests)
			require.Equal(t, c.ids, c.queue.ids)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	require.ErrorIs(t, (&queue{ids: []string{"a", "b"}}).transfer(ctx, "b"), context.DeadlineExceeded)
}
