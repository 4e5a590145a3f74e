//go:build unix

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// NATS starts a nats-server with JetStream. The arguments override the arguments of this package.
func NATS(args ...string) (*Server, error) {
	all, err := NATSCluster(1, args...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// NATSCluster starts n servers that replicate each other's streams. NATSCluster does not wait until the servers
// have connected to each other.
func NATSCluster(n int, args ...string) (all []*Server, err error) {
	binary, err := exec.LookPath("nats-server")
	if err != nil {
		// On Debian, the program is not on the PATH of every user.
		binary, err = exec.LookPath("/usr/sbin/nats-server")
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
			if s.clusterPort, err = testenv.ReservePort(); err != nil {
				return all, err
			}
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", s.clusterPort.Number))
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
		// A NATS server sends a line that begins with INFO to each client that connects.
		s.ready = func(ctx context.Context) error { return s.expectLine(ctx, "", "INFO ") }
		if err := s.Start(); err != nil {
			return all, err
		}
	}
	return all, nil
}
