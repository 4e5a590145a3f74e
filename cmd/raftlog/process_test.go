//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startWithLog starts a peer that writes its log to a pipe.
func (h *harness) startWithLog(id string, log *os.File) *process {
	h.t.Helper()
	p := &process{cmd: exec.Command(program, "serve", "-c", h.file, "--peer-id", id)}
	p.cmd.Stderr = log
	require.NoError(h.t, p.cmd.Start())
	h.t.Cleanup(func() {
		if !p.hasExited() {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	h.peers[id] = p
	return p
}

// TestServe_LogIsNotRead fails if peers wait for their log, whose pipe is full or has no reader: if they do
// not accept a peer that was restarted, do not elect another leader, or do not stop after a signal.
func TestServe_LogIsNotRead(t *testing.T) {
	for name, full := range map[string]bool{"full": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer w.Close()
			if !full {
				r.Close()
			} else {
				defer r.Close()
				fd := int(w.Fd())
				require.NoError(t, syscall.SetNonblock(fd, true))
				for err = nil; err == nil; {
					_, err = syscall.Write(fd, []byte{0})
				}
				require.ErrorIs(t, err, syscall.EAGAIN)
				require.NoError(t, syscall.SetNonblock(fd, false))
			}
			h := newHarness(t, "a", "b", "c")
			for _, id := range []string{"a", "b", "c"} {
				h.startWithLog(id, w)
			}
			leader := h.waitForLeader().Leader.ID
			follower := "a"
			if leader == "a" {
				follower = "b"
			}
			h.killPeers(follower)
			h.startWithLog(follower, w)
			h.killPeers(leader) // the restarted peer is part of the majority
			require.NotEqual(t, leader, h.waitForLeader().Leader.ID)
			h.proposeUpdate("by two")
			for id, p := range h.peers {
				if id != leader {
					require.Zero(t, p.stop(t, syscall.SIGTERM))
				}
			}
		})
	}
}

// TestServe_Signals fails if HUP or QUIT ends a peer without a hand-over, if signals that arrive together
// count twice, or if a signal that was ignored at the start stops the peer.
func TestServe_Signals(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "a")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT} {
		p := h.startPeer("a")
		for _, s := range []syscall.Signal{syscall.SIGSTOP, sig, syscall.SIGTERM} { // wait for CONT
			require.NoError(t, p.cmd.Process.Signal(s))
		}
		require.Zero(t, p.stop(t, syscall.SIGCONT))
		p.waitForLine(t, "msg=stopped")
	}
	cmd := exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$@"`, "sh", program, "serve", "-c", h.file, "--peer-id", "a")
	require.NoError(t, cmd.Start())
	h.waitForLeader()
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "HUP has stopped the peer")
	h.proposeUpdate("after HUP")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
