package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pausedWriter is a destination that accepts nothing while it is paused, as a full pipe.
type pausedWriter struct {
	resume chan struct{} // writes wait until resume is closed
	err    error         // the result of each write
	text   bytes.Buffer
}

func (w *pausedWriter) Write(line []byte) (int, error) {
	<-w.resume
	if w.err != nil {
		return 0, w.err
	}
	return w.text.Write(line)
}

// TestLog_DropsLinesIfPipeIsFull checks that a logger never waits for a destination that accepts nothing, that the
// log keeps a limited number of lines in their order, and that it reports how many lines were dropped.
func TestLog_DropsLinesIfPipeIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &pausedWriter{resume: make(chan struct{})}
		log := &Log{w: w}
		logger, err := NewLogger(log, "text", "info", slog.LevelDebug)
		require.NoError(t, err)
		const lines = 20000 // each line has more than 100 bytes
		start := time.Now()
		for i := range lines {
			logger.Info(strings.Repeat("x", 100), "i", i)
		}
		require.Zero(t, time.Since(start))
		log.Flush()
		require.Equal(t, flushLimit, time.Since(start))
		require.LessOrEqual(t, log.size, maxQueuedLog)
		require.Greater(t, log.size, maxQueuedLog/2)

		close(w.resume)
		log.Flush()
		require.Equal(t, flushLimit, time.Since(start), "the queue was not written")
		text := strings.Split(strings.TrimSpace(w.text.String()), "\n")
		kept := len(text) - 1
		for i, line := range text[:kept] {
			require.True(t, strings.HasSuffix(line, fmt.Sprintf(" i=%d", i)), line)
		}
		require.Contains(t, text[kept], fmt.Sprintf("level=ERROR msg=\"log lines were dropped: standard error was not read in time, or cannot be written\" total=%d", lines-kept))
		logger.Info("last")
		log.Flush()
		require.Contains(t, w.text.String(), "msg=last")
		require.Equal(t, 1, strings.Count(w.text.String(), "dropped"))
	})
}

// TestLog_CountsLinesItCannotWrite checks that the log counts the lines that it could not write, and reports their
// number later.
func TestLog_CountsLinesItCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &pausedWriter{resume: make(chan struct{}), err: errors.New("no space left on device")}
		close(w.resume)
		log := &Log{w: w}
		logger, err := NewLogger(log, "json", "error", slog.LevelDebug)
		require.NoError(t, err)
		logger.Error("first")
		log.Flush()
		w.err = nil
		logger.Error("second")
		log.Flush()
		require.Regexp(t, `^\{[^\n]*"total":1\}\n\{[^\n]*"msg":"second"\}\n$`, w.text.String())
	})
}

// TestNewLogger_RaisesLevelToMinimum checks that NewLogger rejects unknown formats and levels, and does not log below
// its minimum level even if the user has chosen a lower level.
func TestNewLogger_RaisesLevelToMinimum(t *testing.T) {
	for args, want := range map[[2]string]string{
		{"xml", "info"}:  `log-format "xml": must be one of text, json`,
		{"text", "loud"}: `log-level "loud": must be one of debug, info, warn, error`,
	} {
		_, err := NewLogger(io.Discard, args[0], args[1], slog.LevelDebug)
		require.EqualError(t, err, want)
	}
	log, err := NewLogger(io.Discard, "text", "debug", slog.LevelWarn)
	require.NoError(t, err)
	require.False(t, log.Enabled(t.Context(), slog.LevelInfo))
	require.True(t, log.Enabled(t.Context(), slog.LevelWarn))
}
