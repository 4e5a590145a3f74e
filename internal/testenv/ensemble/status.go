package ensemble

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

// fourLetterTimeout is the time limit of a four-letter command. Without a limit, a command to a paused server,
// which accepts the connection and never answers, would wait forever.
const fourLetterTimeout = 2 * time.Second

// ErrNoLeader is the error of [Ensemble.Leader] if no server is the leader.
var ErrNoLeader = errors.New("ensemble: no leader")

// FourLetter sends a four-letter command such as "srvr", "mntr", "wchp" or
// "dump" to server i and returns its answer. It blocks for at most 2 seconds.
func (e *Ensemble) FourLetter(i int, cmd string) (string, error) {
	return sendFourLetter(context.Background(), e.addrs[i], cmd)
}

func sendFourLetter(ctx context.Context, addr, cmd string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fourLetterTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("ensemble: send %s to %s: %w", cmd, addr, err)
	}
	defer conn.Close()
	// Close the connection when ctx ends, so that a blocked read returns.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, cmd); err != nil {
		return "", fmt.Errorf("ensemble: send %s to %s: %w", cmd, addr, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("ensemble: send %s to %s: %w", cmd, addr, err)
	}
	return string(answer), nil
}

// serverStatus contains the values of the answer to "srvr" that tests need.
type serverStatus struct {
	// mode is "leader", "follower" or "standalone". It is empty while the server does not serve clients.
	mode string
	// epoch is the epoch of the last transaction of the server.
	epoch int64
}

func (e *Ensemble) readStatus(ctx context.Context, i int) (serverStatus, error) {
	answer, err := sendFourLetter(ctx, e.addrs[i], "srvr")
	if err != nil {
		return serverStatus{}, err
	}
	return parseStatus(answer), nil
}

func parseStatus(answer string) serverStatus {
	var s serverStatus
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

// Mode returns the mode that server i reports: "leader", "follower" or "standalone". It returns
// an error if the server does not answer or serves no clients. It blocks for at most 2 seconds.
func (e *Ensemble) Mode(i int) (string, error) {
	s, err := e.readStatus(context.Background(), i)
	if err != nil {
		return "", err
	}
	if s.mode == "" {
		return "", fmt.Errorf("ensemble: server %d serves no clients", i)
	}
	return s.mode, nil
}

// Leader returns the number of the server that leads the ensemble, or 0 for a standalone server. If no server is
// the leader, Leader returns [ErrNoLeader]. A leader that is cut off reports for a while that it is the leader; if
// two servers do so, Leader returns the server with the later epoch. Leader blocks for at most 2 seconds.
func (e *Ensemble) Leader() (int, error) {
	states := make([]serverStatus, len(e.addrs))
	var wg sync.WaitGroup
	for i := range e.addrs {
		wg.Go(func() {
			// Ignore errors: the status is then zero, because a server that does not answer is not the leader.
			states[i], _ = e.readStatus(context.Background(), i)
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

// Ready waits until every server that runs, and is neither paused nor cut off, serves clients. It returns an error
// if ctx ends first.
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

// WaitReady waits until server i serves clients: until it reports a mode. It does not suffice that the server
// listens, because a server listens before it has joined its ensemble, and then closes the connections of clients.
// If ctx or the server ends first, WaitReady returns an error with the last lines of the log of the server.
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
		if s, err := e.readStatus(ctx, i); err == nil && s.mode != "" {
			return nil
		}
		// Check more rarely whether the server has exited: with Docker, this check costs more than the request
		// "srvr".
		if n%10 == 0 {
			exited, err := e.hasExited(ctx, i)
			if err != nil {
				return err
			}
			if exited {
				return fmt.Errorf("ensemble: server %d exited\n%s", i, e.Log(i))
			}
		}
		timer.Reset(interval)
	}
}

// hasExited reports whether server i has ended without a call of Kill.
func (e *Ensemble) hasExited(ctx context.Context, i int) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, ErrClosed
	}
	return e.servers[i].running && e.backend.Exited(ctx, i), nil
}

// isPortTaken reports whether err means that another program uses one of the ports.
func isPortTaken(err error) bool {
	text := strings.ToLower(err.Error())
	for _, sign := range []string{"address already in use", "port is already allocated", "bindexception"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
