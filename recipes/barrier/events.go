package barrier

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// observe emits an event when a wait begins. The returned function emits an event when the wait is over and,
// if r is not nil, another event when the participant leaves the round r. r is nil for a Barrier, and after an
// error.
func observe(s *recipe.Setup) (passed func(r *Round, err error)) {
	if s.Events == nil {
		return func(*Round, error) {}
	}
	s.Report("barrier", event.Event{Kind: event.Waiting})
	began := time.Now()
	return func(r *Round, err error) {
		e := event.Event{Kind: event.Passed, Duration: time.Since(began), Err: err}
		if r != nil {
			e.Subject, e.Token = r.node.Path(), r.Token()
		}
		s.Report("barrier", e)
		if r == nil {
			return
		}
		entered := time.Now()
		context.AfterFunc(r.Context(), func() {
			end := event.Event{Kind: event.Released, Subject: e.Subject, Token: e.Token, Duration: time.Since(entered)}
			if err := r.Err(); !errors.Is(err, recipes.ErrReleased) {
				end.Kind, end.Err = event.Lost, err
			}
			s.Report("barrier", end)
		})
	}
}
