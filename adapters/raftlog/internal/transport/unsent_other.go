//go:build !linux

package transport

import "net"

// limitUnsent has no effect on this system.
func limitUnsent(net.Conn) {}
