//go:build !linux

package transport

import "net"

// limitUnsent does nothing on this system.
func limitUnsent(net.Conn) {}
