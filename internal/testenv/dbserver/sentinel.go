//go:build unix

package dbserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// SentinelMaster is the name under which a Sentinel knows its master.
const SentinelMaster = "master"

// Sentinel starts a Redis Sentinel that watches a server.
func Sentinel(master *Server) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: redis-server (apt-get install redis-server): %w", ErrMissing, err)
	}
	s, err := newServer("sentinel")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(master.Addr())
	if err == nil {
		config := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor %s %s %s 1\n", s.Port(), s.dir, SentinelMaster, host, port)
		file := filepath.Join(s.dir, "sentinel.conf")
		err = os.WriteFile(file, []byte(config), 0o600)
		s.command = func() *exec.Cmd { return exec.Command(binary, file, "--sentinel") }
		s.ready = s.ping
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}
