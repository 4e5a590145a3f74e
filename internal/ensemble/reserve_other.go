//go:build !linux

package ensemble

// Elsewhere than on Linux a port cannot be reserved and listened on at the
// same time; it is merely free when asked for, and Start tries again with
// others when one was taken meanwhile.

import (
	"fmt"
	"net"
)

type reservation struct{ port int }

func reservePort() (*reservation, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	defer listener.Close()
	return &reservation{port: listener.Addr().(*net.TCPAddr).Port}, nil
}

func (*reservation) release() {}
