package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// style is an ANSI code, or "" for plain text.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

type line struct {
	text  string
	style style
}

// output prints lines. If a write fails, output calls stop and prints nothing more. It is safe
// for concurrent use.
type output struct {
	colour bool
	stop   context.CancelFunc

	mu     sync.Mutex
	out    io.Writer
	failed bool
}

func (o *output) print(lines ...line) {
	var b strings.Builder
	for _, l := range lines {
		if o.colour && l.style != plain {
			l.text = fmt.Sprintf("\x1b[%sm%s\x1b[0m", l.style, l.text)
		}
		b.WriteString(l.text + "\n")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed {
		return
	}
	if _, err := io.WriteString(o.out, b.String()); err != nil {
		o.failed = true
		o.stop()
	}
}

// millis formats a duration in milliseconds.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", max(ms, 0))
	}
	return fmt.Sprintf("%.0f ms", ms)
}
