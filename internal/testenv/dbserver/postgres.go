//go:build unix

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"
)

// Postgres starts a PostgreSQL server with the superuser postgres, without a password, and a database with the name
// postgres. A setting has the form "wal_level=logical".
func Postgres(settings ...string) (*Server, error) {
	bin, err := postgresDir()
	if err != nil {
		return nil, err
	}
	s, err := newServer("postgres")
	if err != nil {
		return nil, err
	}
	initdb := func(data string) []string {
		return []string{"initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"}
	}
	if err := s.startPostgres(bin, initdb, settings); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// PostgresStandby starts a standby of a server that Postgres has started. name identifies the standby, for example in
// the setting synchronous_standby_names of the primary.
func PostgresStandby(primary *Server, name string, settings ...string) (*Server, error) {
	bin, err := postgresDir()
	if err != nil {
		return nil, err
	}
	s, err := newServer("standby")
	if err != nil {
		return nil, err
	}
	copyPrimary := func(data string) []string {
		from := fmt.Sprintf("host=127.0.0.1 port=%s user=postgres application_name=%s", primary.Port(), name)
		return []string{"pg_basebackup", "-D", data, "-d", from, "-R", "--checkpoint=fast", "--no-sync"}
	}
	if err := s.startPostgres(bin, copyPrimary, settings); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// postgresDir returns the directory that contains the programs of the newest installed version. On Debian, this
// directory is not on the PATH.
func postgresDir() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		path, err := exec.LookPath("initdb")
		if err != nil {
			return "", fmt.Errorf("%w: PostgreSQL (apt-get install postgresql): %w", ErrMissing, err)
		}
		return filepath.Dir(path), nil
	}
	sort.Slice(found, func(i, j int) bool { return len(found[i]) < len(found[j]) || found[i] < found[j] })
	return filepath.Dir(found[len(found)-1]), nil
}

// startPostgres creates the data by a program, whose command line the function program returns, and starts the
// server.
func (s *Server) startPostgres(bin string, program func(data string) []string, settings []string) error {
	credential, err := s.unprivilegedUser()
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	command := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, program), args...)
		cmd.Dir = s.dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd
	}
	line := program(data)
	if out, err := command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("dbserver: %s: %w\n%s", line[0], err, out)
	}
	args := []string{
		"-D", data, "-h", "127.0.0.1", "-p", s.Port(), "-k", s.dir,
		// Without fsync, only a crash of the machine loses data, not the kill of a process. No test crashes the
		// machine.
		"-c", "fsync=off", "-c", "max_connections=200", "-c", "log_min_messages=warning",
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	s.command = func() *exec.Cmd { return command("postgres", args...) }
	s.ready = func(ctx context.Context) error {
		return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", s.Port()).Run()
	}
	return s.Start()
}

// unprivilegedUser returns nil, unless this process runs as root, which PostgreSQL rejects. Then it returns the
// user that runs the server, and makes this user the owner of the directory.
func (s *Server) unprivilegedUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return nil, fmt.Errorf("dbserver: give the data to another user: %w", err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("dbserver: PostgreSQL does not run as root, and there is no other user: %w", errors.Join(errs...))
}
