// Package console implements an election that a person decides by typing commands. It is
// for trying out how a program behaves when it is elected, and for tests.
//
//	LEADER     the candidate becomes leader; "LEADER 7" sets the fencing token
//	NOTLEADER  the candidate loses leadership
//	ERROR      the candidacy ends with ErrTyped
//
// When the input ends, the candidacy ends with [ErrEndOfInput]. The candidate that
// has called ElectLeader receives the lines. While there is none, a line is kept for the
// next candidate.
//
// The package does not coordinate several consoles: two programs can be leaders at the
// same time.
package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	// ErrTyped is the error of a candidacy that was ended by the command ERROR.
	ErrTyped = errors.New("console: ERROR was typed")
	// ErrNotLeaderTyped is the error of a leadership that was ended by the command NOTLEADER.
	ErrNotLeaderTyped = errors.New("console: NOTLEADER was typed")
	// ErrEndOfInput is the error of a candidacy if there is no more input: when the input has
	// ended, after an error of the reader, which is wrapped as well, or after Close.
	ErrEndOfInput = errors.New("console: end of input")
)

// Console reads commands from an input. Its methods may be called from any goroutine.
type Console struct {
	in     io.Reader
	out    io.Writer
	lines  chan string
	closed chan struct{}
	close  sync.Once
	start  sync.Once
	ended  chan struct{} // ended is closed when the input has ended.
	err    error         // err is the error of the reader. It is set before ended is closed.

	mu    sync.Mutex // mu guards out and token.
	token int64      // token is the last token that was reserved for a leadership.
}

// New creates a console. Replies to invalid commands are written to out, unless out is nil. The
// first candidacy starts a goroutine that reads in. The goroutine ends when the input ends, or
// after [Console.Close] when Read returns.
func New(in io.Reader, out io.Writer) *Console {
	if out == nil {
		out = io.Discard
	}
	return &Console{in: in, out: out, lines: make(chan string), closed: make(chan struct{}), ended: make(chan struct{})}
}

// Close ends the input for all candidates and returns nil. It does not close the reader. It may be
// called repeatedly.
func (c *Console) Close() error {
	c.close.Do(func() { close(c.closed) })
	return nil
}

// startReader starts to read lines when it is called for the first time.
func (c *Console) startReader() {
	c.start.Do(func() {
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

// inputError returns the error with which a candidacy ends when there is no more input.
func (c *Console) inputError() error {
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("%w: %w", ErrEndOfInput, c.err)
		}
	default:
	}
	return ErrEndOfInput
}

// parseCommand returns the command in a line, or "" if the line is empty or invalid. For the command LEADER it also
// returns the token of the leadership, which is greater than all reserved tokens. If reserve is set, parseCommand
// reserves this token, so that no other candidate gets it.
func (c *Console) parseCommand(line string, reserve bool) (command string, token int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return "", 0
	case len(fields) == 1 && (fields[0] == "NOTLEADER" || fields[0] == "ERROR"):
		return fields[0], 0
	case len(fields) == 1 && fields[0] == "LEADER" && c.token == math.MaxInt64:
		fmt.Fprintf(c.out, "LEADER: no token is greater than the last one, %d\n", c.token)
		return "", 0
	case len(fields) == 1 && fields[0] == "LEADER":
		// With the time as the minimum, the token is greater than the tokens of an earlier process,
		// unless the clock was set back.
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
	if reserve {
		c.token = token
	}
	return fields[0], token
}
