package lock

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// acquireAndEmitEvents calls acquire, and emits the events of the hold that acquire returns.
func acquireAndEmitEvents(s *recipe.Setup, acquire func() (*Hold, error)) (*Hold, error) {
	if s.Events == nil {
		return acquire()
	}
	began := time.Now()
	h, err := acquire()
	observe(s, h, began)
	return h, err
}

// observe emits an event for a hold that the caller has waited for since began, and an event when the hold
// ends. h may be nil.
func observe(s *recipe.Setup, h *Hold, began time.Time) {
	if s.Events == nil || h == nil {
		return
	}
	granted, subject := time.Now(), h.Path()
	s.Report("lock", event.Event{Kind: event.Acquired, Subject: subject, Token: h.Token(), Duration: granted.Sub(began)})
	context.AfterFunc(h.grant.Context(), func() {
		e := event.Event{Kind: event.Released, Subject: subject, Token: h.Token(), Duration: time.Since(granted)}
		if err := h.Err(); !errors.Is(err, recipes.ErrReleased) {
			e.Kind, e.Err = event.Lost, err
		}
		s.Report("lock", e)
	})
}
