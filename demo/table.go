package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// refreshTable repaints the table on a terminal periodically until stop is closed, because the remaining
// time of the lease changes without an event.
func (m *monitor) refreshTable(stop <-chan struct{}) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			m.mu.Lock()
			m.screen.paint(m.table(now))
			m.mu.Unlock()
		}
	}
}

// table returns the states of the participants and of the observer. The caller must hold mu.
func (m *monitor) table(now time.Time) []line {
	if len(m.names) == 0 {
		return nil // no participant has joined yet
	}
	var lines []line
	for _, p := range m.states {
		text, st := m.describe(p), roleStyle(p.status)
		switch {
		case p.absence != "":
			text, st = p.absence, dim
		case p.election == nil || p.since.IsZero():
			text, st = "joins", dim
		case p.isLeader() && m.screen.live:
			left := max(0, p.status.Leadership.Deadline().Sub(now))
			text = fmt.Sprintf("%-32s lease ends in %.1f s", text, left.Seconds())
		}
		lines = append(lines, line{fmt.Sprintf("   %s  %s", p.name, text), st})
	}
	return append(lines, line{"   An observer sees: " + m.describeObservation(), dim})
}

func (m *monitor) describeObservation() string {
	switch o := m.observed; {
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

// describe describes the status of a participant. The caller must hold mu.
func (m *monitor) describe(p *participantState) string {
	s := p.status
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
		name := m.names[s.NowFollowing]
		if name == "" {
			name = s.NowFollowing
		}
		return "follows " + name
	}
	return "not in the queue: its session has expired"
}

// printLine prints an event with the time since the start of the step. The caller must hold mu.
func (m *monitor) printLine(at time.Time, name, text string, s style) {
	m.screen.print(line{fmt.Sprintf("   %10s  %s  %s", "+"+millis(at.Sub(m.start)), name, text), s})
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

// millis formats a duration in milliseconds.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", max(ms, 0))
	}
	return fmt.Sprintf("%.0f ms", ms)
}
