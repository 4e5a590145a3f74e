package cmdline

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

const (
	// maxQueuedLog is the maximum number of bytes that a [Log] queues while the destination does not accept data.
	maxQueuedLog = 1 << 20
	// flushLimit is the maximum time that [Log.Flush] waits.
	flushLimit = time.Second
)

// Stderr is the log of this process, which writes to standard error. The commands write everything except panics to
// Stderr, because a write to os.Stderr blocks while standard error is a full pipe.
var Stderr = &Log{w: os.Stderr}

// Log is a writer that never blocks: it queues lines, and a goroutine writes them to the destination. If the queue is
// full, because the destination does not accept data, Log drops lines, and later reports their number. Each Write is
// one line.
type Log struct {
	w io.Writer

	mu       sync.Mutex
	queue    [][]byte
	size     int                    // the size of queue in bytes
	dropped  int                    // the number of dropped lines
	reported int                    // the value of dropped when reportDropped queued the last report
	report   func(total int) []byte // returns a line with the total number of dropped lines
	written  chan struct{}          // closed by writeQueue after writing the queue; nil if writeQueue does not run
}

// Write queues a line, or drops the line if the queue is full. Write returns no error in either case.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// After a dropped line, drop all lines until half of the queue was written. Otherwise a slow reader would receive
	// a report after each line.
	if l.size+len(line) > maxQueuedLog || l.dropped > l.reported && l.size > maxQueuedLog/2 {
		l.dropped++
		return len(line), nil
	}
	l.reportDropped()
	l.enqueue(bytes.Clone(line))
	if l.written == nil {
		l.written = make(chan struct{})
		go l.writeQueue(l.written)
	}
	return len(line), nil
}

func (l *Log) enqueue(line []byte) {
	l.queue = append(l.queue, line)
	l.size += len(line)
}

// reportDropped queues a report if Log has dropped lines since the last report.
func (l *Log) reportDropped() {
	if l.dropped > l.reported && l.report != nil {
		l.reported = l.dropped
		l.enqueue(l.report(l.dropped))
	}
}

// writeQueue writes the lines of the queue until the queue is empty, and then closes the channel written. Only one
// goroutine runs writeQueue.
func (l *Log) writeQueue(written chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		line := l.queue[0]
		l.mu.Unlock()
		_, err := l.w.Write(line)
		l.mu.Lock()
		l.queue = l.queue[1:]
		l.size -= len(line)
		switch {
		case err != nil:
			l.dropped++ // the next report also counts the line that could not be written
		case len(l.queue) == 0:
			l.reportDropped()
		}
	}
	l.written = nil
	close(written)
}

// Flush waits until all queued lines have been written, but at most for a second.
func (l *Log) Flush() {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(flushLimit):
	}
}

// Exit writes the queued lines of Stderr and ends the process.
func Exit(code int) {
	Stderr.Flush()
	os.Exit(code)
}

// RegisterLog registers the flags of [NewLogger].
func RegisterLog(flags *pflag.FlagSet, format, level *string) {
	flags.StringVar(format, "log-format", "text", "format of log messages, which go to standard error: text or json")
	flags.StringVar(level, "log-level", "info", "least severe messages to log: debug, info, warn or error")
}

// logValues are the values of the flags of [RegisterLog].
var logValues = map[string][]string{"log-format": {"text", "json"}, "log-level": {"debug", "info", "warn", "error"}}

// NewLogger returns a logger that writes to w. format is text or json. The logger drops messages that are less severe
// than level, or less severe than least. If w is a [Log], it reports dropped lines in this format.
func NewLogger(w io.Writer, format, level string, least slog.Level) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log-level %q: must be one of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: max(l, least)}
	handler := func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) }
	switch format {
	case "text":
	case "json":
		handler = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(escapingWriter{w}, options) }
	default:
		return nil, fmt.Errorf("log-format %q: must be one of text, json", format)
	}
	if log, ok := w.(*Log); ok {
		log.setReport(func(total int) []byte {
			var line bytes.Buffer
			slog.New(handler(&line)).Error("log lines were dropped: standard error was not read in time, or cannot be written", "total", total)
			return line.Bytes()
		})
	}
	return slog.New(handler(w)), nil
}

func (l *Log) setReport(report func(total int) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report = report
}
