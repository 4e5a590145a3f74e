//go:build !linux

package testenv

import (
	"fmt"
	"net"
)

// Port is a port of the loopback interface that was free when ReservePort chose it. Only Linux can reserve a port
// on which a server may listen, so another program can use the same port.
type Port struct{ Number int }

// ReservePort returns a free port.
func ReservePort() (*Port, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	defer listener.Close()
	return &Port{Number: listener.Addr().(*net.TCPAddr).Port}, nil
}

// Release does nothing, because the port is not reserved.
func (*Port) Release() {}
