//go:build unix

package dbserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// NATS starts a nats-server with JetStream, whose files are its own. The arguments come
// after ours, and override them.
func NATS(args ...string) (*Server, error) {
	all, err := NATSCluster(1, args...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// NATSCluster starts n of them that replicate each other's streams. It does not wait until
// they have found each other.
func NATSCluster(n int, args ...string) (all []*Server, err error) {
	binary, err := exec.LookPath("nats-server")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/nats-server") // Debian's, for users without that path
	}
	if err != nil {
		return nil, fmt.Errorf("%w: nats-server (apt-get install nats-server): %w", ErrMissing, err)
	}
	defer func() {
		if err != nil {
			for _, s := range all {
				err = errors.Join(err, s.Close())
			}
			all = nil
		}
	}()
	var routes []string
	for range n {
		s, err := newServer("nats")
		if err != nil {
			return all, err
		}
		all = append(all, s)
		if n > 1 {
			if s.peers, err = reserve(); err != nil {
				return all, err
			}
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", s.peers.number))
		}
	}
	for i, s := range all {
		own := []string{
			"--addr", "127.0.0.1", "--port", s.Port(), "--name", fmt.Sprint("n", i),
			"--jetstream", "--store_dir", filepath.Join(s.dir, "data"),
		}
		if n > 1 {
			own = append(own, "--cluster_name", "test", "--cluster", routes[i], "--routes", strings.Join(routes, ","))
		}
		own = append(own, args...)
		s.command = func() *exec.Cmd { return exec.Command(binary, own...) }
		s.ready = s.greets
		if err := s.Start(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// greets asks whether the server sends what a NATS server sends to whoever connects.
func (s *Server) greets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "INFO ") {
		err = fmt.Errorf("it says %q", line)
	}
	return err
}
