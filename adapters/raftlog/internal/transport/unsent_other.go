//go:build !linux

package transport

import "net"

// limitUnsent does nothing, because this system has no such limit.
func limitUnsent(net.Conn) {}
