package testenv

import (
	"fmt"
	"os"
	"syscall"
)

// Port is a free port of the loopback interface. A socket that is bound and never listens reserves the port: Linux
// assigns the port to no other program, but lets a server with SO_REUSEADDR listen on the port, as ZooKeeper, Go
// programs and the proxy of Docker do. Connections to the port are refused while no server listens.
type Port struct {
	Number int
	file   *os.File
}

// ReservePort reserves a port until Release is called.
func ReservePort() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", os.NewSyscallError("socket", err))
	}
	file := os.NewFile(uintptr(fd), "reserved port")
	port, err := bindFreePort(fd)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	return &Port{Number: port, file: file}, nil
}

// bindFreePort binds the socket to a port that the system chooses, and returns the port.
func bindFreePort(fd int) (int, error) {
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
		return 0, fmt.Errorf("unexpected address type %T", name)
	}
	return addr.Port, nil
}

// Release frees the port.
func (p *Port) Release() { p.file.Close() }
