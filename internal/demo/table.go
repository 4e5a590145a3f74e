package demo

// How the board looks.

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// refresh keeps the table of a terminal up to date until stop is closed: the
// time for which a leadership is proven changes by itself.
func (b *board) refresh(stop <-chan struct{}) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			b.mu.Lock()
			b.screen.paint(b.table(now))
			b.mu.Unlock()
		}
	}
}

// table says who leads and who follows whom. The caller holds mu.
func (b *board) table(now time.Time) []line {
	if len(b.names) == 0 {
		return nil // nobody has come yet
	}
	var lines []line
	for _, r := range b.rows {
		text, st := b.describe(r), roleStyle(r.status)
		switch {
		case r.gone != "":
			text, st = r.gone, dim
		case r.election == nil || r.since.IsZero():
			text, st = "joins", dim
		case r.leads() && b.screen.live:
			left := max(0, r.status.Leadership.Deadline().Sub(now))
			text = fmt.Sprintf("%-32s lease ends in %.1f s", text, left.Seconds())
		}
		lines = append(lines, line{fmt.Sprintf("   %s  %s", r.name, text), st})
	}
	return append(lines, line{"   An observer sees: " + b.observation(), dim})
}

func (b *board) observation() string {
	switch o := b.observed; {
	case errors.Is(o.Err, leaderelection.ErrElectionOver):
		return "the election is over"
	case o.Err != nil:
		return o.Err.Error()
	case o.Leader == nil:
		return "no leader"
	default:
		return fmt.Sprintf("%s leads, token %d", o.Leader.Name, o.Leader.Token)
	}
}

// describe says what a participant was told. The caller holds mu.
func (b *board) describe(r *row) string {
	s := r.status
	switch {
	case errors.Is(s.Err, leaderelection.ErrElectionOver):
		return "candidacy ends: the election is over (ErrElectionOver)"
	case s.Err != nil:
		return fmt.Sprintf("candidacy ends: %v", s.Err)
	case s.Role == leaderelection.Leader:
		return fmt.Sprintf("leads, token %d", s.Leadership.Token())
	case s.Role == leaderelection.Suspended:
		return "suspended: its lease has expired, so it must not act"
	case s.NowFollowing != "":
		name := b.names[s.NowFollowing]
		if name == "" {
			name = s.NowFollowing
		}
		return "follows " + name
	}
	return "not in the queue: its session has expired"
}

// event shows one line of the step. The caller holds mu.
func (b *board) event(at time.Time, name, what string, s style) {
	b.screen.print(line{fmt.Sprintf("   %10s  %s  %s", "+"+millis(at.Sub(b.begin)), name, what), s})
}

func roleStyle(s leaderelection.Status) style {
	switch s.Role {
	case leaderelection.Leader:
		return green
	case leaderelection.Suspended:
		return yellow
	}
	return plain
}

// millis gives a time as a person wants to read it.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", max(ms, 0))
	}
	return fmt.Sprintf("%.0f ms", ms)
}
