//go:build unix

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// PgBouncer starts a connection pooler in transaction mode for a server that Postgres has started. A
// setting has the form "default_pool_size=2".
func PgBouncer(server *Server, settings ...string) (*Server, error) {
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		// On Debian, the program is not on the PATH of every user.
		binary, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: pgbouncer (apt-get install pgbouncer): %w", ErrMissing, err)
	}
	s, err := newServer("pgbouncer")
	if err != nil {
		return nil, err
	}
	if err := s.startPgBouncer(binary, server, settings); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) startPgBouncer(binary string, server *Server, settings []string) error {
	credential, err := s.unprivilegedUser()
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "pgbouncer.ini")
	config := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%s\n"+
		"unix_socket_dir=\nauth_type=any\npool_mode=transaction\nserver_login_retry=0.1\n%s\n", server.Port(), s.Port(), strings.Join(settings, "\n"))
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return fmt.Errorf("dbserver: configure pgbouncer: %w", err)
	}
	s.command = func() *exec.Cmd {
		cmd := exec.Command(binary, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd
	}
	s.ready = func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
		if err == nil {
			conn.Close()
		}
		return err
	}
	return s.Start()
}
