//go:build unix

package dbserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// SentinelMaster is the name under which a Sentinel monitors its master.
const SentinelMaster = "master"

// Redis starts a redis-server that writes each change to its file before it answers. The arguments override the
// arguments of this package.
func Redis(args ...string) (*Server, error) {
	return startRedis("redis", func(s *Server) ([]string, error) {
		return append([]string{
			"--bind", "127.0.0.1", "--port", s.Port(), "--dir", s.dir, "--daemonize", "no",
			"--save", "", "--appendonly", "yes", "--appendfsync", "always",
		}, args...), nil
	})
}

// Sentinel starts a Redis Sentinel that monitors a server.
func Sentinel(master *Server) (*Server, error) {
	return startRedis("sentinel", func(s *Server) ([]string, error) {
		host, port, err := net.SplitHostPort(master.Addr())
		if err != nil {
			return nil, err
		}
		config := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor %s %s %s 1\n", s.Port(), s.dir, SentinelMaster, host, port)
		file := filepath.Join(s.dir, "sentinel.conf")
		return []string{file, "--sentinel"}, os.WriteFile(file, []byte(config), 0o600)
	})
}

// startRedis starts the program redis-server with the arguments that the function args returns.
func startRedis(name string, args func(*Server) ([]string, error)) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: redis-server (apt-get install redis-server): %w", ErrMissing, err)
	}
	s, err := newServer(name)
	if err != nil {
		return nil, err
	}
	all, err := args(s)
	if err == nil {
		s.command = func() *exec.Cmd { return exec.Command(binary, all...) }
		// The server is ready when it answers with PONG or requires authentication. While it loads its file, it
		// answers with other errors.
		s.ready = func(ctx context.Context) error { return s.expectLine(ctx, "PING\r\n", "+PONG", "-NOAUTH") }
		err = s.Start()
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// expectLine connects to the server, sends a request, and returns an error unless the first line from the server
// begins with one of the prefixes.
func (s *Server) expectLine(ctx context.Context, request string, prefixes ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) }) {
		err = fmt.Errorf("read the first line of the server: unexpected text %q", line)
	}
	return err
}
