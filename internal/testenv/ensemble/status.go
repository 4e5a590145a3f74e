package ensemble

// What the servers say about themselves. A listening port is not readiness: a
// server listens before it has joined its ensemble and then drops clients, so
// readiness is a mode in the answer to "srvr".

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fourLetterTimeout bounds one four-letter command. A paused server accepts
// the connection and never answers.
const fourLetterTimeout = 2 * time.Second

// ErrNoLeader is returned by [Ensemble.Leader] when no server leads.
var ErrNoLeader = errors.New("ensemble: no server leads")

// FourLetter sends a four-letter command such as "srvr", "mntr", "wchp" or
// "dump" to server i and returns its answer. It blocks for at most 2 seconds.
func (e *Ensemble) FourLetter(i int, cmd string) (string, error) {
	return fourLetter(context.Background(), e.addrs[i], cmd)
}

func fourLetter(ctx context.Context, addr, cmd string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fourLetterTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", cmd, err)
	}
	defer conn.Close()
	// Closing is what ends a read when ctx does.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, cmd); err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", cmd, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", cmd, err)
	}
	return string(answer), nil
}

// status is the part of an answer to "srvr" that matters here.
type status struct {
	mode  string // leader, follower, standalone; empty while it does not serve
	epoch int64  // of the last transaction seen
}

func (e *Ensemble) status(ctx context.Context, i int) (status, error) {
	answer, err := fourLetter(ctx, e.addrs[i], "srvr")
	if err != nil {
		return status{}, err
	}
	return parseStatus(answer), nil
}

func parseStatus(answer string) status {
	var s status
	for line := range strings.Lines(answer) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Mode":
			s.mode = value
		case "Zxid":
			zxid, err := strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 64)
			if err == nil {
				s.epoch = int64(zxid >> 32)
			}
		}
	}
	return s
}

// Mode gives what server i says it is: "leader", "follower" or "standalone".
// It fails while the server does not answer or serves no clients, and blocks
// for at most 2 seconds.
func (e *Ensemble) Mode(i int) (string, error) {
	s, err := e.status(context.Background(), i)
	if err != nil {
		return "", err
	}
	if s.mode == "" {
		return "", fmt.Errorf("ensemble: server %d serves no clients", i)
	}
	return s.mode, nil
}

// Leader gives the server that leads, or the standalone server, else
// [ErrNoLeader]. A leader that is cut off goes on calling itself one for a
// while: of two, the one with the later epoch is given. It blocks for at most
// 2 seconds.
func (e *Ensemble) Leader() (int, error) {
	states := make([]status, len(e.addrs))
	var wg sync.WaitGroup
	for i := range e.addrs {
		wg.Go(func() {
			// A server that does not answer does not lead.
			states[i], _ = e.status(context.Background(), i)
		})
	}
	wg.Wait()

	leader, epoch := -1, int64(-1)
	for i, s := range states {
		if (s.mode == "leader" || s.mode == "standalone") && s.epoch > epoch {
			leader, epoch = i, s.epoch
		}
	}
	if leader < 0 {
		return -1, ErrNoLeader
	}
	return leader, nil
}

// Ready waits until every server that has been started, and is neither paused
// nor cut off, serves clients. It blocks until then or until ctx ends.
func (e *Ensemble) Ready(ctx context.Context) error {
	e.mu.Lock()
	var want []int
	for i, s := range e.servers {
		if s.running && !s.paused && !s.cut {
			want = append(want, i)
		}
	}
	e.mu.Unlock()
	for _, i := range want {
		if err := e.WaitReady(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// WaitReady waits until server i serves clients: it answers "srvr" with a
// mode. It blocks until then, until ctx ends, or until the server ends by
// itself, and then returns an error with the last lines of the server's log.
func (e *Ensemble) WaitReady(ctx context.Context, i int) error {
	const interval = 50 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return fmt.Errorf("ensemble: server %d is not ready: %w\n%s", i, ctx.Err(), e.Log(i))
		case <-timer.C:
		}
		if s, err := e.status(ctx, i); err == nil && s.mode != "" {
			return nil
		}
		// Asking Docker whether a container runs costs more than "srvr" does.
		if n%10 == 0 {
			ended, err := e.ended(ctx, i)
			if err != nil {
				return err
			}
			if ended {
				return fmt.Errorf("ensemble: server %d ended by itself\n%s", i, e.Log(i))
			}
		}
		timer.Reset(interval)
	}
}

// ended says whether server i was started and is gone although nobody killed
// it.
func (e *Ensemble) ended(ctx context.Context, i int) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, ErrClosed
	}
	return e.servers[i].running && e.backend.Exited(ctx, i), nil
}

// isPortTaken says whether an error of Start comes from a port that another
// program has taken.
func isPortTaken(err error) bool {
	text := strings.ToLower(err.Error())
	for _, sign := range []string{"address already in use", "port is already allocated", "bindexception"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
