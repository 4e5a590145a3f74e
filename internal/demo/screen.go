package demo

// The screen: lines that scroll by and, on a terminal, a table that stays below
// them. Anywhere else the output is plain lines.

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// style is how a line looks where there are colours: an ANSI code.
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

const width = 78

// screen is safe for use by several goroutines.
type screen struct {
	live   bool // a terminal
	colour bool

	mu     sync.Mutex
	out    io.Writer
	table  []line
	height int // of the table as it is on the terminal now
	err    error
	failed chan struct{} // closed with the first err
}

func newScreen(out io.Writer, live, colour bool) *screen {
	return &screen{live: live, colour: colour, out: out, failed: make(chan struct{})}
}

// isTerminal says whether a person looks at f.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// print adds lines above the table.
func (s *screen) print(lines ...line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.eraseTable(&b)
	for _, l := range lines {
		s.put(&b, l)
	}
	s.putTable(&b)
	s.write(b.String())
}

// paint replaces the table.
func (s *screen) paint(table []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(table, s.table) {
		return
	}
	s.table = table
	if s.live {
		var b strings.Builder
		s.eraseTable(&b)
		s.putTable(&b)
		s.write(b.String())
	}
}

// printTable puts the table among the lines where there is none below them.
func (s *screen) printTable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		return
	}
	var b strings.Builder
	b.WriteString("\n")
	for _, l := range s.table {
		s.put(&b, l)
	}
	s.write(b.String())
}

func (s *screen) eraseTable(b *strings.Builder) {
	if s.height > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.height)
		s.height = 0
	}
}

func (s *screen) putTable(b *strings.Builder) {
	if !s.live || len(s.table) == 0 {
		return
	}
	// A line that wraps would take two rows, and be half erased: no wrapping.
	b.WriteString("\x1b[?7l")
	s.put(b, line{"-- now " + strings.Repeat("-", width-len("-- now ")), dim})
	for _, l := range s.table {
		s.put(b, l)
	}
	b.WriteString("\x1b[?7h")
	s.height = len(s.table) + 1
}

func (s *screen) put(b *strings.Builder, l line) {
	if s.colour && l.style != plain {
		fmt.Fprintf(b, "\x1b[%sm%s\x1b[0m\n", l.style, l.text)
		return
	}
	b.WriteString(l.text + "\n")
}

func (s *screen) write(text string) {
	if s.err != nil {
		return
	}
	if _, s.err = io.WriteString(s.out, text); s.err != nil {
		close(s.failed)
	}
}
