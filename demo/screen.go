package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
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

const width = 78

// screen prints lines. On a terminal it keeps a table below them. It is safe for concurrent use.
type screen struct {
	live   bool // the output is a terminal
	colour bool

	mu     sync.Mutex
	out    io.Writer
	table  []line
	height int           // rows of the table on the terminal
	err    error         // of the first write that has failed
	failed chan struct{} // is closed after err is set
}

func newScreen(out io.Writer, live, colour bool) *screen {
	return &screen{live: live, colour: colour, out: out, failed: make(chan struct{})}
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// print prints lines above the table.
func (s *screen) print(lines ...line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.eraseTable(&b)
	for _, l := range lines {
		s.writeLine(&b, l)
	}
	s.writeTable(&b)
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
		s.writeTable(&b)
		s.write(b.String())
	}
}

// printTable prints the table if the output is not a terminal.
func (s *screen) printTable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		return
	}
	var b strings.Builder
	b.WriteString("\n")
	for _, l := range s.table {
		s.writeLine(&b, l)
	}
	s.write(b.String())
}

func (s *screen) eraseTable(b *strings.Builder) {
	if s.height > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.height)
		s.height = 0
	}
}

func (s *screen) writeTable(b *strings.Builder) {
	if !s.live || len(s.table) == 0 {
		return
	}
	// Wrapping is disabled, because eraseTable assumes that each line has one row.
	b.WriteString("\x1b[?7l")
	s.writeLine(b, line{"-- now " + strings.Repeat("-", width-len("-- now ")), dim})
	for _, l := range s.table {
		s.writeLine(b, l)
	}
	b.WriteString("\x1b[?7h")
	s.height = len(s.table) + 1
}

func (s *screen) writeLine(b *strings.Builder, l line) {
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
