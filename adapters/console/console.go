// Package console is an election that a person decides, by typing: for trying out what a
// program does when it is elected, and for tests.
//
//	LEADER     leads from now on; "LEADER 7" sets the fencing token
//	NOTLEADER  leads no more
//	ERROR      the candidacy ends with ErrTyped
//
// The end of the input ends the candidacy with [ErrEndOfInput]. Words are heard by the
// candidate that takes part; a line that comes while there is none waits for the next.
//
// Nothing keeps two people from electing two programs at one time.
package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	// ErrTyped: somebody has typed ERROR.
	ErrTyped = errors.New("console: ERROR was typed")
	// ErrNotLeader: somebody has typed NOTLEADER. It is the reason of a leadership's end.
	ErrNotLeader = errors.New("console: NOTLEADER was typed")
	// ErrEndOfInput: nothing more can be typed, because of the end of the input, an error
	// of the reader, which is wrapped too, or Close.
	ErrEndOfInput = errors.New("console: end of input")
)

// Console is where words are typed. Its methods may be called from any goroutine.
type Console struct {
	in     io.Reader
	out    io.Writer
	lines  chan string
	closed chan struct{}
	close  sync.Once
	read   sync.Once
	ended  chan struct{} // the reader has, for the reason err
	err    error

	mu    sync.Mutex // for out and token
	token int64      // the last
}

// New makes a console. What is not understood is answered on out, unless that is nil.
// in is read from the first candidacy on, by a goroutine that ends with the input, or
// after Close when in returns from Read.
func New(in io.Reader, out io.Writer) *Console {
	if out == nil {
		out = io.Discard
	}
	return &Console{in: in, out: out, lines: make(chan string), closed: make(chan struct{}), ended: make(chan struct{})}
}

// Close ends the input, for the candidates too. It does not close the reader.
func (c *Console) Close() { c.close.Do(func() { close(c.closed) }) }

// start starts the reader, the first time.
func (c *Console) start() {
	c.read.Do(func() {
		go func() {
			defer close(c.ended)
			s := bufio.NewScanner(c.in)
			for s.Scan() {
				select {
				case c.lines <- s.Text():
				case <-c.closed:
					return
				}
			}
			c.err = s.Err()
		}()
	})
}

// end is the error of the end of input. ended or closed is closed.
func (c *Console) end() error {
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("%w: %w", ErrEndOfInput, c.err)
		}
	default:
	}
	return ErrEndOfInput
}

// understand returns what a line says; word is empty if there is nothing to do.
func (c *Console) understand(line string) (word string, token int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return "", 0
	case len(fields) == 1 && (fields[0] == "NOTLEADER" || fields[0] == "ERROR"):
		return fields[0], 0
	case len(fields) == 1 && fields[0] == "LEADER":
		// Greater than those of an earlier process, as far as clocks go.
		token = max(c.token+1, time.Now().UnixMilli())
	case len(fields) == 2 && fields[0] == "LEADER":
		var err error
		if token, err = strconv.ParseInt(fields[1], 10, 64); err != nil || token <= c.token {
			fmt.Fprintf(c.out, "%q: not a number greater than %d\n", fields[1], c.token)
			return "", 0
		}
	default:
		fmt.Fprintf(c.out, "%q: not one of LEADER, NOTLEADER, ERROR\n", line)
		return "", 0
	}
	return fields[0], token
}

// used notes the token of a leadership.
func (c *Console) used(token int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = max(c.token, token)
}
