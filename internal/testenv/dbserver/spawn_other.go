//go:build unix && !linux

package dbserver

// Elsewhere than on Linux nothing ends a child with its parent but Close, and a port is
// merely free when it is asked for.

import (
	"fmt"
	"net"
	"os/exec"
)

type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (*spawner) start(cmd *exec.Cmd) error { return cmd.Start() }

func (*spawner) close() {}

type port struct{ number int }

func reserve() (*port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("dbserver: find a port: %w", err)
	}
	defer l.Close()
	return &port{l.Addr().(*net.TCPAddr).Port}, nil
}

func (*port) release() {}
