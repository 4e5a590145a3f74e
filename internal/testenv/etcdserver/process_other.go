//go:build !linux

package etcdserver

// Elsewhere than on Linux nothing ends a child with its parent; the end of the test does.

import (
	"errors"
	"os"
	"os/exec"
)

func startProcess(cmd *exec.Cmd, log *os.File) (*process, error) {
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended does not matter
	}()
	return p, nil
}

func freeze(*os.Process) error { return errors.ErrUnsupported }

func thaw(*os.Process) error { return errors.ErrUnsupported }
