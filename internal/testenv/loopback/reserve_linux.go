// Package loopback reserves ports for servers that tests start, kill and start again: ports
// that stay theirs while no server listens on them.
package loopback

import (
	"fmt"
	"os"
	"syscall"
)

// Port is a free loopback port, held by a socket that is bound and
// never listens. Linux gives such a port to nobody who asks for any port, and
// still lets a server listen on it that sets SO_REUSEADDR, as ZooKeeper, Go
// and Docker's proxy do. A connection to it is refused until then.
type Port struct {
	Number int
	file   *os.File
}

// Reserve reserves a port until Release.
func Reserve() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	file := os.NewFile(uintptr(fd), "reserved port")
	port, err := bindAnyPort(fd)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &Port{Number: port, file: file}, nil
}

func bindAnyPort(fd int) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	addr, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("unexpected address %T", name)
	}
	return addr.Port, nil
}

// Release gives the port back.
func (r *Port) Release() { r.file.Close() }
