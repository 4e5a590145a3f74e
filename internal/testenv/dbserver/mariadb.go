//go:build unix

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// MariaDB starts a MariaDB server with the superuser root, without a password, and an empty database
// test. A setting has the form "sync-binlog=1".
func MariaDB(settings ...string) (*Server, error) {
	return startMariaDB(func(*Server) ([]string, error) { return settings, nil })
}

// Galera starts a cluster of one MariaDB server, with the library of Debian's package galera-4, which
// mariadb-server requires.
func Galera(settings ...string) (*Server, error) {
	return startGalera("gcomm://", append([]string{"wsrep-new-cluster"}, settings...))
}

// GaleraNode starts another server of a cluster that Galera has started. The new server copies the data by rsync.
func GaleraNode(first *Server, settings ...string) (*Server, error) {
	return startGalera(fmt.Sprintf("gcomm://127.0.0.1:%d", first.clusterPort.Number), settings)
}

func startGalera(cluster string, settings []string) (*Server, error) {
	return startMariaDB(func(s *Server) (own []string, err error) {
		if s.clusterPort, err = testenv.ReservePort(); err != nil {
			return nil, err
		}
		if s.copyPort, err = testenv.ReservePort(); err != nil {
			return nil, err
		}
		return append([]string{
			"wsrep-on=ON", "wsrep-provider=/usr/lib/galera/libgalera_smm.so", "wsrep-cluster-address=" + cluster,
			fmt.Sprintf("wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d", s.clusterPort.Number),
			"wsrep-sst-method=rsync", fmt.Sprintf("wsrep-sst-receive-address=127.0.0.1:%d", s.copyPort.Number),
			"wsrep-node-address=127.0.0.1", "binlog-format=ROW", "innodb-autoinc-lock-mode=2",
		}, settings...), nil
	})
}

// startMariaDB creates the data of a server, and starts the server with the settings that the function settings
// returns.
func startMariaDB(settings func(*Server) ([]string, error)) (*Server, error) {
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return nil, fmt.Errorf("%w: MariaDB (apt-get install mariadb-server): %w", ErrMissing, err)
	}
	binary, err := exec.LookPath("mariadbd")
	if err != nil {
		// On Debian, the program is not on the PATH of every user.
		binary, err = exec.LookPath("/usr/sbin/mariadbd")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: mariadbd (apt-get install mariadb-server): %w", ErrMissing, err)
	}
	s, err := newServer("mariadb")
	if err != nil {
		return nil, err
	}
	all, err := settings(s)
	if err == nil {
		err = s.startMariaDB(install, binary, all)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// startMariaDB creates the data with the program at the path install, and starts the server with the program at the
// path binary.
func (s *Server) startMariaDB(install, binary string, settings []string) error {
	credential, err := s.unprivilegedUser()
	if err != nil {
		return err
	}
	command := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(program, append([]string{"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--tmpdir=" + s.dir}, args...)...)
		cmd.Dir = s.dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd
	}
	const logSize = "--innodb-log-file-size=8M"
	// The installation program creates a database test in which every user may do everything. Replace this
	// database.
	script := filepath.Join(s.dir, "create.sql")
	if err := os.WriteFile(script, []byte("CREATE DATABASE test;\n"), 0o644); err != nil {
		return fmt.Errorf("dbserver: configure MariaDB: %w", err)
	}
	out, err := command(install, "--auth-root-authentication-method=normal", "--skip-test-db", "--extra-file="+script,
		"--skip-name-resolve", logSize).CombinedOutput()
	if err != nil {
		return fmt.Errorf("dbserver: %s: %w\n%s", install, err, out)
	}
	args := []string{
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--bind-address=127.0.0.1", "--port=" + s.Port(), "--skip-name-resolve",
		"--max-connections=300", "--innodb-buffer-pool-size=32M", logSize,
	}
	for _, setting := range settings {
		args = append(args, "--"+setting)
	}
	s.command = func() *exec.Cmd { return command(binary, args...) }
	// The first packet of the server contains its length, a number, and the version of the protocol, 10. The byte
	// 10 is a line feed, so expectLine receives a line.
	s.ready = func(ctx context.Context) error { return s.expectLine(ctx, "", "") }
	return s.Start()
}
