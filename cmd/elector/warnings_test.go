package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lineWriter is a channel that receives the text of each Write.
type lineWriter chan string

func (w lineWriter) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// TestWarnWhileWaiting_DoublesPauseBetweenWarnings checks that a command whose servers do not answer logs its first
// warning after two seconds, doubles the pause before each further warning, and names the servers in each warning.
func TestWarnWhileWaiting_DoublesPauseBetweenWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(lineWriter, 10)
		s := &settings{backend: "zookeeper", zookeeper: zooKeeperSettings{servers: "a:1"}, log: slog.New(slog.NewTextHandler(lines, nil))}
		stop := s.warnWhileWaiting()
		for seconds, warnings := range []int{0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3} {
			synctest.Wait()
			require.Len(t, lines, warnings, "%d s", seconds)
			time.Sleep(time.Second)
		}
		stop()
		time.Sleep(time.Hour)
		require.Len(t, lines, 3)
		require.Contains(t, <-lines, "servers=a:1")
	})
}

// TestWarningHistory_DoublesPauseBetweenWarnings checks that warningHistory doubles the pause between equal warnings,
// up to a limit, and never delays a new warning.
func TestWarningHistory_DoublesPauseBetweenWarnings(t *testing.T) {
	h, now := newWarningHistory(), time.Now()
	var logged, dropped []int
	for second := range 600 {
		if n, due := h.add("no answer", now.Add(time.Duration(second)*time.Second)); due {
			logged, dropped = append(logged, second), append(dropped, n)
		}
	}
	require.Equal(t, []int{0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363, 423, 483, 543}, logged)
	require.Equal(t, []int{0, 0, 1, 3, 7, 15, 31, 59, 59, 59, 59, 59, 59, 59, 59}, dropped)

	_, due := h.add("unknown host", now.Add(600*time.Second))
	require.True(t, due, "another warning is logged immediately")
	_, due = h.add("no answer", now.Add(600*time.Second))
	require.False(t, due)
	n, due := h.add("no answer", now.Add(time.Hour))
	require.True(t, due, "a warning that has not occurred for a long time is logged immediately")
	require.Zero(t, n)

	for i := range 10 * maxWarnings {
		h.add(fmt.Sprint(i), now)
	}
	require.LessOrEqual(t, len(h.warnings), maxWarnings)
}

// TestLimitedLog_DropsOnlyRepeatedWarnings checks that the logger of limitedLog drops repeated warnings, but no other
// messages, and keeps attributes.
func TestLimitedLog_DropsOnlyRepeatedWarnings(t *testing.T) {
	out := &bytes.Buffer{}
	s := &settings{log: slog.New(slog.NewTextHandler(out, nil))}
	log := s.limitedLog().With("server", "a")
	for range 3 {
		log.Warn("no answer", "err", errors.New("connection refused"))
		log.Info("connected")
	}
	log.Warn("no answer", "err", errors.New("unknown host"))
	require.Equal(t, 2, strings.Count(out.String(), "no answer"))
	require.Contains(t, out.String(), `msg="no answer" server=a err="connection refused"`)
	require.Contains(t, out.String(), `msg="no answer" server=a err="unknown host"`)
	require.Equal(t, 3, strings.Count(out.String(), "connected"), "only warnings are limited")
}
