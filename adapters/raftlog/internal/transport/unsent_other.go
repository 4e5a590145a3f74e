//go:build !linux

package transport

import "net"

// keepUnsentSmall is for Linux.
func keepUnsentSmall(net.Conn) {}
