//go:build unix

package dbserver

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

// Redis starts a redis-server that writes every change to its file before it answers.
// The arguments come after ours, and override them.
func Redis(args ...string) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: redis-server (apt-get install redis-server): %w", ErrMissing, err)
	}
	s, err := newServer("redis")
	if err != nil {
		return nil, err
	}
	all := append([]string{
		"--bind", "127.0.0.1", "--port", s.Port(), "--dir", s.dir, "--daemonize", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", "always",
	}, args...)
	s.command = func() *exec.Cmd { return exec.Command(binary, all...) }
	s.ready = s.ping
	if err := s.Start(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// ping asks whether the server answers; while it reads its file it answers with errors.
func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
		err = fmt.Errorf("it answers %q", line)
	}
	return err
}
