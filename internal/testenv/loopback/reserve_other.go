//go:build !linux

package loopback

// Elsewhere than on Linux a port cannot be reserved and listened on at the
// same time; it is merely free when asked for, and Start tries again with
// others when one was taken meanwhile.

import (
	"fmt"
	"net"
)

// Port is a loopback port that was free.
type Port struct{ Number int }

// Reserve reserves a port until Release.
func Reserve() (*Port, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	defer listener.Close()
	return &Port{Number: listener.Addr().(*net.TCPAddr).Port}, nil
}

// Release gives the port back.
func (*Port) Release() {}
